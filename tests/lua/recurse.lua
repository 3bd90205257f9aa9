-- SPDX-License-Identifier: Apache-2.0
-- Recursion 200 deep with the work at the bottom, and a binary recursion.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock

local function bottom(n) --: bottom
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function deep(n, work) --: deep
  if n == 1 then return bottom(work) + 1 end
  return deep(n - 1, work) + 1
end

-- One call of run_deep has exactly 200 frames of deep above bottom.
local function run_deep(n, work) --: run_deep
  local s = 0
  for i = 1, n do s = s + deep(200, work) end
  return s
end

local function fib(n) --: fib
  if n < 2 then return n end
  return fib(n - 1) + fib(n - 2)
end
local function run_fib(n) --: run_fib
  local s = fib(n)
  return s
end

local fast = jit.status()
while go() do
  local t0 = clock()
  run_deep(4, fast and 200000 or 20000)
  local t1 = clock()
  run_fib(fast and 22 or 19)
  local t2 = clock()
  add("run_deep", t1 - t0)
  add("run_fib", t2 - t1)
end
