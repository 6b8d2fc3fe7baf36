"""The store: one folder per stage, which alone says what was asked, measured and finished.

    <store>/<kind>/<key>/
      stage.yaml      what the newest attempt was asked: the resolved configuration and its origin
      attempts/       who worked on the stage (fope_lab/store/attempts.py)
      metrics/        <token>-<step>.jsonl: one segment per attempt and checkpoint interval
      checkpoint/     <token>-<step>/: what the stage leaves to others (a model, prepared data, a
                      tokenizer, an analysis's files), or what it goes on from after a kill, with
                      a manifest.json written last
      progress.json   for the progress view; never read as a result
      log.txt  result.json  DONE

A checkpoint counts when its manifest exists and every file has the size that the manifest states.
Who reads its content compares the digests as well. A stage is done when DONE exists and what it
names is whole: stage.yaml, the result, the rows and the checkpoint. Of a stage that is not done,
the rows are read up to its newest checkpoint: an attempt that resumes from there writes the later
ones again.
"""
