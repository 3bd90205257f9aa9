-- SPDX-License-Identifier: Apache-2.0
-- Coroutines: resume, wrap in wrap in wrap, a generator. Below a coroutine's
-- own frames stand those of its resumers, down to the main thread.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local create, resume = coroutine.create, coroutine.resume
local wrap, yield = coroutine.wrap, coroutine.yield

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function resumed(a) --: resumed
  for i = 1, 5 do
    spin(200)
    a = yield(a)
  end
  return a
end
local function run_resume(n) --: run_resume
  for i = 1, n do
    local co = create(resumed)
    for k = 1, 6 do resume(co, k) end
  end
end

-- level1 resumes level2, which resumes level3; each yields to its resumer.
local function level3() --: level3
  for i = 1, 3 do
    spin(400)
    yield(i)
  end
end
local function level2() --: level2
  local inner = wrap(level3)
  for i = 1, 3 do
    spin(200)
    yield(inner())
  end
end
local function level1() --: level1
  local inner = wrap(level2)
  for i = 1, 3 do
    spin(100)
    yield(inner())
  end
end
local function run_wrap(n) --: run_wrap
  for i = 1, n do
    local outer = wrap(level1)
    for k = 1, 3 do outer() end
  end
end

local function generator(n) --: generator
  for i = 1, n do
    spin(50)
    yield(i)
  end
end
local function run_generator(n) --: run_generator
  local s = 0
  local function start() generator(n) end --: start
  for value in wrap(start) do s = s + value end
  return s
end

local scale = jit.status() and 4 or 1
while go() do
  local t0 = clock()
  run_resume(50 * scale)
  local t1 = clock()
  run_wrap(20 * scale)
  local t2 = clock()
  run_generator(500 * scale)
  local t3 = clock()
  add("run_resume", t1 - t0)
  add("run_wrap", t2 - t1)
  add("run_generator", t3 - t2)
end
