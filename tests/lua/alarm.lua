-- SPDX-License-Identifier: Apache-2.0
-- Work in Lua, in C called from Lua and in Lua called from C, for a signal
-- handler of the host to interrupt.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local c_spin, c_call = c_spin, c_call

local function in_lua(n) --: in_lua
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function in_c(n) --: in_c
  for i = 1, n do c_spin(20000) end
end

local function below(n) --: below
  local s = 0
  for i = 1, n do s = s + i % 7 end
  return s
end
local function through_c(n) --: through_c
  for i = 1, n do c_call(below, 1000) end
end

local scale = jit.status() and 10 or 1
while go() do
  in_lua(100000 * scale)
  in_c(20)
  through_c(40 * scale)
end
