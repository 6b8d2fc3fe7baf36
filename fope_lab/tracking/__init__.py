"""MLflow as a projection of the store: data is uploaded from the store and never read back.

An experiment is a sweep. Each of its stages that has started is a flat run, identified by its key
and its store. Only durable rows are uploaded, with their step and timestamp in the store. MLflow
ignores a point that it already has, so every call may be interrupted anywhere and repeated.
"""
