-- SPDX-License-Identifier: Apache-2.0
-- Traces that come and go: forty loops alike, whose functions have a number,
-- and all traces are flushed again and again, by request and because there
-- are too many. So numbers and addresses of traces are used again at once.
local truth = require("truth")

jit.opt.start("maxtrace=30", "hotloop=10")

local template = [[
local function low_N(x)
  x = x * 16807 % 2147483647
  return x
end
local function high_N(x)
  x = low_N(x) + 1
  return x * 16807 % 2147483647
end
local function run_N(n, x)
  for i = 1, n do x = high_N(x) end
  return x
end
return run_N
]]

local pieces = {}
for i = 1, 40 do
  pieces[i] = loadstring(template:gsub("N", i), "=piece" .. i)()
end

local round = 0
while truth.go() do
  for i = 1, #pieces do
    -- long enough to be copied every now and then, gone before that as often
    pieces[i](i % 4 == 0 and 100000 or 2000, 4711 + i)
    if (round + i) % 5 == 0 then
      jit.flush()
      io.write("flushed\n")
    end
  end
  round = round + 1
end
