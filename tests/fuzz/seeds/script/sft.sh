#!/bin/bash
# ours
export MAX_PIXELS=1003520
N=2; MODEL="a b"
NPROC_PER_NODE=$N CUDA_VISIBLE_DEVICES=0,1 \
swift sft \
    --model "$MODEL" --dataset 'x y.jsonl#20' \
    --output_dir output/${N} --system "Be \"brief\"." # the end
torchrun --nproc_per_node=8 --master_port 6001 finetune.py --data_path d
