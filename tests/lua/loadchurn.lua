-- SPDX-License-Identifier: Apache-2.0
-- Code that lives for a moment: load() under ever new chunk names, run, and
-- thrown away. By the time a report is written, all prototypes of the run are
-- gone, and others lie at their addresses.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local loadstring, collectgarbage = loadstring, collectgarbage

-- Line 2 of each piece: one_N, line 6: two_N, line 0: the main chunk.
local TEMPLATE = [[

local function one_%d(n)
  local s = 0
  for i = 1, n do s = s + i end
  return s
end local function two_%d(n)
  local s = one_%d(n) + 1
  return s
end
return two_%d(2000) + 1
]]

local format = string.format
local number = 0
local function piece() --: piece
  number = number + 1
  local text = format(TEMPLATE, number, number, number, number)
  local chunk = loadstring(text, "=piece" .. number)
  local s = chunk()
  return s
end

while go() do
  local t0 = clock()
  for i = 1, 50 do piece() end
  add("piece", clock() - t0)
  collectgarbage()
end
