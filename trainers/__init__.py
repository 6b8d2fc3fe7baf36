"""Training stages: prepare-data, pretrain, extend and finetune, over one loop."""
