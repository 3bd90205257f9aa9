-- SPDX-License-Identifier: Apache-2.0
-- Vararg functions (two physical frames, one call) and tail calls (the caller
-- is gone: what called it calls the target).
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function va_leaf(...) --: va_leaf
  local n = select("#", ...)
  local a, b = ...
  return spin(50) + n + (a or 0) + (b or 0)
end
local function va_middle(x, ...) --: va_middle
  local s = va_leaf(x, ...)
  return s + va_leaf(...)
end
local function run_vararg(n) --: run_vararg
  local s = 0
  for i = 1, n do s = s + va_middle(i, 2, 3, 4) end
  return s
end

local function tail3(n) --: tail3
  local s = spin(60) + n
  return s
end
local function tail2(n) --: tail2
  local m = spin(20)
  return tail3(n + m)
end
local function tail1(...) --: tail1
  return tail2(...)
end
local function run_tail(n) --: run_tail
  local s = 0
  for i = 1, n do s = s + tail1(i) end
  return s
end

-- A tail call to itself, many times: one frame, however long it runs.
local function tail_loop(n, s) --: tail_loop
  if n == 0 then return s end
  return tail_loop(n - 1, s + spin(20))
end
local function run_loop(n) --: run_loop
  local s = tail_loop(n, 0)
  return s
end

local scale = jit.status() and 8 or 1
while go() do
  local t0 = clock()
  run_vararg(300 * scale)
  local t1 = clock()
  run_tail(300 * scale)
  local t2 = clock()
  run_loop(1000 * scale)
  local t3 = clock()
  add("run_vararg", t1 - t0)
  add("run_tail", t2 - t1)
  add("run_loop", t3 - t2)
end
