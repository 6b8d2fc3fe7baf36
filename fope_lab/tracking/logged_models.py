"""The LoggedModels of an experiment in MLflow: their requests, each of which may be repeated."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fope_lab.tracking.causes import concerns_one_run
from fope_lab.tracking.models import ModelRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient

WITHOUT_MODELS = ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED", "FEATURE_DISABLED")
"""The error codes of a server that has no LoggedModels, because it is too old, say."""


class LoggedModels:
    """The LoggedModels of an experiment; `known` is false once the server turned out to have none.

    Their ids can't be chosen, so a creation whose answer was lost is found again by its run.
    """

    def __init__(self, client: MlflowClient, experiment_id: str) -> None:
        self._client, self._experiment_id = client, experiment_id
        self.known = True

    @contextlib.contextmanager
    def if_known(self) -> Iterator[None]:
        """Go on without models if the server has none."""
        try:
            yield
        except Exception as error:
            if getattr(error, "error_code", None) not in WITHOUT_MODELS:
                raise
            self.known = False

    def bring(self, model_id: str | None, run_id: str, record: ModelRecord) -> str:
        """Bring the model of a run up to date, if need be after making it; returns its id.

        `model_id` is None if the run has no model as its output. It has one once the model is
        complete.
        """
        from mlflow.entities import LoggedModelOutput

        tags = {**record.tags, "mlflow.model.isExternal": "true"}
        found = model_id or self._unlinked(run_id, record)
        if found is None:
            made = self._client.create_logged_model(
                self._experiment_id,
                record.name,
                run_id,
                tags=tags,
                params=dict(record.params),
                model_type=record.kind,
            )
            found = str(made.model_id)
        else:
            self._client.set_logged_model_tags(found, tags)
        self._describe(found, run_id, tags)
        self._client.finalize_logged_model(found, "READY")
        if model_id is None:
            self._client.log_outputs(run_id, [LoggedModelOutput(found, record.step)])
        return found

    def retire(self, model_id: str, run_id: str) -> None:
        """Delete the model of a run that is replaced, but not one that a user has registered.

        It stays, too, if the registry can't say or the model is already gone.
        """
        try:
            if not self._client.search_model_versions(f"run_id = '{run_id}'"):
                self._client.delete_logged_model(model_id)
        except Exception as error:
            if not concerns_one_run(error):
                raise

    def _unlinked(self, run_id: str, record: ModelRecord) -> str | None:
        """The model that was made for a run, but is not yet its output; others are deleted."""
        found = self._client.search_logged_models(
            [self._experiment_id], filter_string=f"tags.key = '{record.tags['key']}'"
        )
        ids = [str(model.model_id) for model in found if model.source_run_id == run_id]
        for other in ids[1:]:
            self._client.delete_logged_model(other)
        return ids[0] if ids else None

    def _describe(self, model_id: str, run_id: str, tags: Mapping[str, str]) -> None:
        """Add the file MLmodel, which the registry needs; it says where the checkpoint is."""
        from mlflow.models import Model, infer_signature

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "MLmodel"
            spec = Model(
                model_uuid=model_id,
                model_id=model_id,
                run_id=run_id,
                signature=infer_signature(True, True),  # Unity Catalog refuses a model without any
                metadata={**tags, "mlflow.model.isExternal": True},
            )
            spec.save(str(path))
            self._client.log_model_artifact(model_id, str(path))
