"""What other tools and papers call things, so that their words lead to ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fope_lab.config.problems import FieldPath, Problem, unknown_name

OTHER_WORDS: Mapping[str, str] = {
    # an embedding
    "base": "theta rope_theta θ rotary_base rotary_emb_base rope_base theta_base wavelength",
    "factor": "scale s scaling rope_factor scaling_factor rope_scale linear_factor extension",
    "original_length": "L original_max_position_embeddings original_context old_context_len"
    " original_seq_len max_position_embeddings pretrained_length train_length n_ctx_orig",
    "fraction": "partial_rotary_factor rotary_pct rotary_percentage rotary_ratio rope_pct",
    "alpha": "beta_slow low_freq_factor",
    "beta": "beta_fast high_freq_factor",
    "attention_factor": "attn_factor temperature attention_temperature",
    "window": "sliding_window window_size sliding_window_size local_window swa",
    "num_frequencies": "num_freqs D n_frequencies num_coefficients",
    "num_positions": "max_positions max_position n_positions",
    "num_buckets": "buckets relative_attention_num_buckets",
    "max_distance": "relative_attention_max_distance",
    "query_scale": "query_scaling logit_scale attention_scale softmax_scale",
    "pattern": "layers layer_types layout",
    # a model
    "num_layers": "n_layer n_layers num_hidden_layers layers depth",
    "num_heads": "n_head n_heads num_attention_heads heads",
    "num_kv_heads": "n_kv_head n_kv_heads num_key_value_heads num_query_groups kv_heads",
    "head_dim": "d_head head_size dim_head d_k kv_channels",
    "hidden_size": "d_model n_embd dim embed_dim hidden_dim width model_dim",
    "intermediate_size": "d_ff ffn_dim ffn_hidden_size n_inner mlp_hidden_size mlp_dim",
    "vocab_size": "vocabulary_size n_vocab padded_vocab_size",
    "tie_embeddings": "tie_word_embeddings weight_tying tied_embeddings",
    "norm_eps": "rms_norm_eps layer_norm_eps layer_norm_epsilon eps",
    "feed_forward": "mlp activation hidden_act activation_function",
    # text
    "corpus": "dataset data text source",
    "data": "dataset corpus datasets train_data",
    "dataset": "dataset_name dataset_path hub hf_dataset repo",
    "files": "file path paths folder data_files text_files train_files train_file glob",
    "token_ids": "tokens bin npy token_files ids",
    "column": "text_column field text_field content_key text_key content_field",
    "answer_column": "response_column target_column completion_column output_column",
    "config": "subset name dataset_config config_name",
    "length": "seq_len seq_length sequence_length max_seq_len max_seq_length block_size max_length"
    " context context_length n_ctx ctx cutoff_len",
    "lengths": "context_lengths seq_lens length contexts",
    "mix": "mixture sources datasets data_mix blend",
    "weight": "proportion ratio share probability prob",
    "limit": "max_samples max_examples num_samples n",
    "documents": "mask intra_document_masking document_masking attention_mask",
    "pack": "packing sample_packing",
    "prefix": "bos add_bos add_bos_token bos_token add_start_token",
    "vocabulary": "vocab_size vocab",
    # training
    "train": "training trainer optimization training_args hyperparameters",
    "tokens": "max_tokens train_tokens num_tokens steps max_steps num_steps max_iters train_iters"
    " epochs num_epochs num_train_epochs token_budget",
    "batch_tokens": "batch_size global_batch_size train_batch_size batch bs tokens_per_batch",
    "micro_batch_tokens": "micro_batch_size per_device_train_batch_size micro_batch"
    " gradient_accumulation_steps grad_accum accumulation",
    "learning_rate": "lr max_lr peak_lr eta",
    "final_learning_rate": "min_lr lr_min final_lr end_lr min_learning_rate",
    "schedule": "scheduler lr_scheduler lr_schedule lr_scheduler_type lr_decay_style",
    "warmup": "warmup_ratio warmup_steps warmup_iters num_warmup_steps lr_warmup",
    "decay": "cooldown decay_ratio lr_decay",
    "weight_decay": "wd l2",
    "gradient_clip": "grad_clip max_grad_norm clip clip_grad gradient_clipping grad_norm_clip",
    "betas": "adam_betas beta1 beta2 adam_beta1 adam_beta2",
    "precision": "dtype bf16 fp16 torch_dtype amp mixed_precision",
    "optimizer": "optim opt optimizer_type",
    "adapter": "lora peft lora_config",
    "gradient_checkpointing": "activation_checkpointing grad_checkpointing recompute",
    "checkpoint_every": "save_steps save_every save_interval ckpt_every",
    "log_every": "logging_steps log_interval log_steps",
    "validate_every": "eval_steps eval_every eval_interval val_every",
    "validation_tokens": "eval_tokens eval_iters val_tokens",
    # stages and a sweep
    "kind": "type task stage_type",
    "type": "rope_type name method embedding_type",
    "from": "checkpoint base_model model_name_or_path parent pretrained init_from load resume",
    "embedding": "position_embedding positional_embedding pos_emb pe rope rope_scaling"
    " position_encoding positional_encoding encoding",
    "resources": "resource compute hardware requirements",
    "gpus": "gpu num_gpus devices n_gpus gpus_per_node",
    "cpus": "cpu num_cpus n_cpus threads",
    "workers": "num_workers world_size nproc processes nodes",
    "strategy": "parallelism distributed fsdp ddp sharding",
    "trials": "num_trials samples num_samples n_trials repeats n_samples",
    "num_fewshot": "shots n_shot num_shots few_shot fewshot",
    "stages": "jobs steps tasks experiments pipeline runs",
    "grid": "parameters params sweep matrix axes search_space hyperparameters",
    "seeds": "seed num_seeds n_seeds repeats replicates",
    "plugins": "plugin imports modules extensions",
    "report": "claims tables figures outputs",
    "claims": "hypotheses assertions expectations",
    # names
    "pretrain": "train pretraining pre-train pre_train training scratch",
    "extend": "continue cpt continual continued continual_pretraining extension",
    "finetune": "sft finetuning fine-tune fine_tune instruct instruction_tuning",
    "perplexity": "ppl loss eval evaluation",
    "needle": "niah needle_in_a_haystack haystack",
    "lm-eval": "harness lm_eval lm-evaluation-harness lm_evaluation_harness",
    "rope": "rotary_embedding default rotary_embeddings vanilla_rope",
    "nope": "none no off null without no_pe",
    "pi": "linear position_interpolation position-interpolation linear_scaling",
    "ntk": "ntk-aware ntk_aware ntk-rope",
    "dynamic-ntk": "dynamic dynamic_ntk",
    "longrope": "su",
    "learned": "absolute ape learned_absolute gpt2",
    "sinusoidal": "sin absolute_sinusoidal vanilla_transformer fixed",
    "t5": "relative rpe relative_bias t5_bias t5-bias",
    "p-rope": "partial_rope partial-rope prope",
    "fope": "fourier_position_embedding",
    "cosine": "cos cosine_with_min_lr cosine_annealing",
    "wsd": "warmup_stable_decay trapezoidal warmup-stable-decay",
    "bfloat16": "bf16",
    "float32": "fp32 fp float",
    "adamw": "adam adamw_torch adamw_torch_fused",
    "fsdp": "fsdp2 zero3 zero full_shard",
}
"""The words of others for each of ours, in any context: one counts where ours is allowed."""

FOREIGN: Mapping[str, frozenset[str]] = {
    "sweep of Weights & Biases": frozenset({"program", "method", "parameters", "metric"}),
    "configuration of Hydra": frozenset({"defaults", "hydra"}),
    "configuration of axolotl": frozenset(
        {"base_model", "sequence_len", "datasets", "micro_batch_size", "num_epochs"}
    ),
    "configuration of LLaMA-Factory": frozenset(
        {"model_name_or_path", "finetuning_type", "template", "cutoff_len", "do_train"}
    ),
    "config.json of transformers": frozenset(
        {"architectures", "model_type", "hidden_size", "num_attention_heads"}
    ),
    "task of lm-evaluation-harness": frozenset(
        {"task", "doc_to_text", "dataset_path", "output_type"}
    ),
    "configuration of litgpt": frozenset(
        {"checkpoint_dir", "out_dir", "model_name", "initial_checkpoint_dir"}
    ),
    "task of SkyPilot": frozenset({"run", "setup", "file_mounts", "num_nodes"}),
    "manifest of Kubernetes": frozenset({"apiVersion", "metadata", "spec"}),
    "file of Docker Compose": frozenset({"services", "volumes", "networks", "version"}),
    "workflow of GitHub": frozenset({"on", "jobs", "env"}),
    "cluster file of Ray": frozenset({"cluster_name", "provider", "available_node_types", "auth"}),
    "dataset card": frozenset({"dataset_info", "configs", "license", "task_categories"}),
}
"""Top-level keys that files of other tools have; two of them tell one."""


def unknown_word(
    path: FieldPath, what: str, name: object, names: Sequence[str], of: str = ""
) -> Problem:
    """The problem of an unknown name (problems.py), which knows what others call ours."""
    problem, word = unknown_name(path, what, name, names, of), str(name).strip()
    forms = {word, word.lower().replace("-", "_")}
    ours = (one for one in names if forms & set(OTHER_WORDS.get(one, "").split()))
    return dataclasses.replace(problem, nearest=next(ours, problem.nearest))


def other_tool(content: Mapping[str, Any]) -> str | None:
    """What a file of another tool is, by its top-level keys; None for what is none, or may be one
    of ours."""
    if {"stages", "name"} <= content.keys():
        return None
    return max(
        (what for what, keys in FOREIGN.items() if len(keys & content.keys()) > 1),
        key=lambda what: len(FOREIGN[what] & content.keys()),
        default=None,
    )
