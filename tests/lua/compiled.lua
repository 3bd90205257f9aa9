-- SPDX-License-Identifier: Apache-2.0
-- Some time in machine code, some in the interpreter: a loop that is compiled,
-- and one that must not be, which calls `interpreted` a known number of times.
-- Protocol as in calls.lua: 1009 rounds; with the argument `on` it goes on
-- after `done` until it is ended.
local calls = 0
local function interpreted(n) --: interpreted
  calls = calls + 1
  local s = 0
  for i = 1, n do s = s + i % 3 end
  return s
end
local function inlined(x) --: inlined
  return x % 7
end
local function compiled(n) --: compiled
  local s = 0
  for i = 1, n do s = s + inlined(i) end
  return s
end
local function round() --: round
  interpreted(3000)
  compiled(30000)
end
jit.off(interpreted)
jit.off(round)

for i = 1, 200 do round() end
io.write("ready\n")
io.flush()
io.read()
calls = 0
for i = 1, 1009 do round() end
io.write("called interpreted ", calls, "\n", "done\n")
io.flush()
while (...) == "on" do round() end
io.read("*a")
