-- SPDX-License-Identifier: Apache-2.0
-- VM A of nested.c: the outermost, entered again from VM B.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local in_b, in_c = in_b, in_c

local function spin_a(n) --: spin_a
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

function work(n) --: work_a=work
  spin_a(n)
  in_c(n)
end

local in_b_seconds = 0
local function outer_a(n) --: outer_a
  spin_a(n)
  local t = clock()
  in_b(n)
  in_b_seconds = clock() - t
end

local scale = jit.status() and 40000 or 4000
while go() do
  local t0 = clock()
  outer_a(scale)
  local t1 = clock()
  in_c(scale)
  local t2 = clock()
  add("outer_a", t1 - t0)
  add("in_b", in_b_seconds)
  add("direct_c", t2 - t1)
end
