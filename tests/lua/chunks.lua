-- SPDX-License-Identifier: Apache-2.0
-- Chunk names that could break a folded line, a terminal or a parser, source
-- text as a name, and bytecode without debug information.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local loadstring, dump = loadstring, string.dump

local BODY = [[
return function(n)
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
]]

-- A global function: its name is in the bytecode, stripped or not.
local GLOBAL = [[
function %s(n)
  local s = 0
  for i = 1, n do s = s + i end
  return s
end
]]

local function make(name) --: make
  loadstring(GLOBAL:format("f_" .. name.id), name.chunk)()
  return _G["f_" .. name.id]
end

local long = "local padding = '" .. string.rep("x", 4096) .. "'\n"
local made = {
  make({ id = "semicolon", chunk = "=a;b" }),
  make({ id = "newline", chunk = "@dir/a\nb.lua" }),
  make({ id = "escape", chunk = "=\27[2Jred\7" }),
  make({ id = "invalid", chunk = "=\255\254x\192" }),
  make({ id = "utf8", chunk = "=\195\188ber.lua" }),
  make({ id = "space", chunk = "=a b 12" }),
}
-- The source text is the chunk name when none is given.
loadstring(GLOBAL:format("f_source"))()
loadstring(long .. GLOBAL:format("f_long"))()
made[#made + 1] = f_source
made[#made + 1] = f_long

-- Stripped: no lines, no local names; the name given to load() is kept.
loadstring(dump(loadstring(GLOBAL:format("f_stripped"), "=gone"), true),
           "=stripped")()
made[#made + 1] = f_stripped

local names = { "semicolon", "newline", "escape", "invalid", "utf8", "space",
  "source", "long", "stripped" }
local scale = jit.status() and 100000 or 10000
while go() do
  for i = 1, #made do
    local t = clock()
    made[i](i * scale / 4)
    add(names[i], clock() - t)
  end
end
