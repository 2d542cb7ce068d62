"""Marks versions of symbols as optional in a program of Linux: weaken.py FROM TO VERSION..."""
import struct
import sys

source, target, *versions = sys.argv[1:]
data = bytearray(open(source, "rb").read())
offset, = struct.unpack_from("<Q", data, 0x28)
size, count = struct.unpack_from("<HH", data, 0x3A)
sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + size * i) for i in range(count)]
needs = next(s for s in sections if s[1] == 0x6FFFFFFE)
names = sections[needs[6]][4]
at = needs[4]
while True:
    _, _, _, aux, next_need = struct.unpack_from("<HHIII", data, at)
    entry = at + aux
    while True:
        _, flags, _, name, next_aux = struct.unpack_from("<IHHII", data, entry)
        start = names + name
        if data[start : data.index(0, start)].decode() in versions:
            struct.pack_into("<H", data, entry + 4, flags | 2)
        if not next_aux:
            break
        entry += next_aux
    if not next_need:
        break
    at += next_need
open(target, "wb").write(data)
