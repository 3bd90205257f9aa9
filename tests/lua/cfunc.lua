-- SPDX-License-Identifier: Apache-2.0
-- C functions of the host, called from Lua, that call Lua again in each way
-- the C API has; two deep in one case.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local c_spin, c_call, c_pcall, c_cpcall = c_spin, c_call, c_pcall, c_cpcall
local c_resume, yield = c_resume, coroutine.yield

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function only_c(n) --: only_c
  for i = 1, n do c_spin(2000) end
end

local function called(n) --: called
  spin(n)
  c_spin(200)
end
local function by_call(n) --: by_call
  for i = 1, n do c_call(called, 200) end
end

local function pcalled(n) --: pcalled
  spin(n)
end
local function by_pcall(n) --: by_pcall
  for i = 1, n do c_pcall(pcalled, 200) end
end

local function cpcalled(n) --: cpcalled
  spin(n)
end
local function by_cpcall(n) --: by_cpcall
  for i = 1, n do c_cpcall(cpcalled, 200) end
end

local function resumed(n) --: resumed
  for i = 1, 3 do
    spin(n)
    yield(i)
  end
end
local function by_resume(n) --: by_resume
  for i = 1, n do c_resume(resumed, 100) end
end

-- Lua, C, Lua, C, Lua.
local function innermost(n) --: innermost
  spin(n)
end
local function between(n) --: between
  c_call(innermost, n)
  spin(n)
end
local function two_deep(n) --: two_deep
  for i = 1, n do c_pcall(between, 150) end
end

local scale = jit.status() and 4 or 1
while go() do
  local t0 = clock()
  only_c(100)
  local t1 = clock()
  by_call(100 * scale)
  local t2 = clock()
  by_pcall(100 * scale)
  local t3 = clock()
  by_cpcall(100 * scale)
  local t4 = clock()
  by_resume(60 * scale)
  local t5 = clock()
  two_deep(60 * scale)
  local t6 = clock()
  add("only_c", t1 - t0)
  add("by_call", t2 - t1)
  add("by_pcall", t3 - t2)
  add("by_cpcall", t4 - t3)
  add("by_resume", t5 - t4)
  add("two_deep", t6 - t5)
end
