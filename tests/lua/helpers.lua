-- SPDX-License-Identifier: Apache-2.0
-- Arithmetic that the interpreter does by calling helpers of the VM (`%`,
-- floor) or libm (`^`, sin): the stack pointer is off its usual place there,
-- or BASE lives in another register.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local floor, ceil, sin, exp = math.floor, math.ceil, math.sin, math.exp
local fmod, log, modf = math.fmod, math.log, math.modf

local function modulo(n) --: modulo
  local s = 0
  for i = 1, n do s = s + i % 7 + (i * 0.5) % 1.25 end
  return s
end

local function floors(n) --: floors
  local s = 0
  for i = 1, n do s = s + floor(i * 0.3) - ceil(i * 0.7) end
  return s
end

local function powers(n) --: powers
  local s = 0
  for i = 1, n do s = s + i ^ 0.5 + i ^ 2 end
  return s
end

local function libm(n) --: libm
  local s = 0
  for i = 1, n do
    s = s + sin(i) + exp(i * 1e-4) + log(i) + fmod(i, 7) + modf(i * 0.1)
  end
  return s
end

local scale = jit.status() and 8 or 1
while go() do
  local t0 = clock()
  modulo(10000 * scale)
  local t1 = clock()
  floors(8000 * scale)
  local t2 = clock()
  powers(5000 * scale)
  local t3 = clock()
  libm(2000 * scale)
  local t4 = clock()
  add("modulo", t1 - t0)
  add("floors", t2 - t1)
  add("powers", t3 - t2)
  add("libm", t4 - t3)
end
