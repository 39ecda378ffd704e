"""Push a checkpoint to the hub that HF_ENDPOINT names, and use it from there -> outputs as JSON."""

from __future__ import annotations

import json
import sys

from transformers import AutoModelForCausalLM, pipeline

from hamburger_edge.integrations.transformers import HamburgerForCausalLM, HamburgerTokenizer

NAME = "Org/Name-1.5"
CHAT = [{"role": "user", "content": "What is 7 plus 8?"}]
[checkpoint] = sys.argv[1:]

model = HamburgerForCausalLM.from_pretrained(checkpoint)
commit = model.push_to_hub(NAME, commit_message="Two and two", token="none").oid
prompt = HamburgerTokenizer.from_pretrained(checkpoint).apply_chat_template(
    CHAT, add_generation_prompt=True, return_tensors="pt"
)
here = model.generate(prompt)[0].tolist()
there = AutoModelForCausalLM.from_pretrained(NAME).generate(prompt)[0].tolist()
HamburgerForCausalLM.from_pretrained("tiny")  # a local model: no request to the hub
HamburgerTokenizer.from_pretrained("tiny")
text = pipeline("text-generation", model=NAME)(CHAT, do_sample=False)[0]["generated_text"][-1]["content"]
print(json.dumps({"commit": commit, "here": here, "there": there, "text": text}))
