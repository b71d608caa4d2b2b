"""A model that knows nothing: the demo model with random weights. random_model.py DIRECTORY"""
import json
import os
import random
import shutil
import struct
import sys

DEMO = __file__.rsplit("/", 3)[0] + "/deploy/demo-model"
TO = sys.argv[1]
HIGH = bytes([0x3C, 0x3D, 0xBC, 0xBD])  # of bf16: up to an eighth, of either sign

draw = random.Random(24)
os.mkdir(TO)
for name in os.listdir(DEMO):
    if name != "model.safetensors":
        shutil.copy(f"{DEMO}/{name}", TO)
with open(f"{DEMO}/model.safetensors", "rb") as file:
    whole = bytearray(file.read())
(size,) = struct.unpack("<Q", whole[:8])
table = bytes(HIGH[byte % 4] for byte in range(256))
for name, tensor in json.loads(whole[8 : 8 + size]).items():
    if name == "__metadata__" or "norm" in name:
        continue
    begin, end = (8 + size + offset for offset in tensor["data_offsets"])
    whole[begin:end] = draw.randbytes(end - begin)
    whole[begin + 1 : end : 2] = bytes(whole[begin + 1 : end : 2]).translate(table)
with open(f"{TO}/model.safetensors", "wb") as file:
    file.write(whole)
