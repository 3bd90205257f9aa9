-- SPDX-License-Identifier: Apache-2.0
-- Three functions with the same body, run 600 : 300 : 100 times as long. Each
-- is timed in pieces of a millisecond, and again by its loop count.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local UNIT = jit.status() and 4000 or 400

local function f600(n) --: f600
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function f300(n) --: f300
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function f100(n) --: f100
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

while go() do
  local t0 = clock()
  f600(600 * UNIT)
  local t1 = clock()
  f300(300 * UNIT)
  local t2 = clock()
  f100(100 * UNIT)
  local t3 = clock()
  add("f600", t1 - t0)
  add("f300", t2 - t1)
  add("f100", t3 - t2)
end
