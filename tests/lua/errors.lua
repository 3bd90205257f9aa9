-- SPDX-License-Identifier: Apache-2.0
-- pcall and xpcall, error handlers, errors of the VM, and errors thrown
-- through frames of C functions.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local pcall, xpcall, error = pcall, xpcall, error
local traceback = debug.traceback
local c_call, c_xpcall, c_error = c_call, c_xpcall, c_error

local function spin(n) --: spin
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function thrower(n) --: thrower
  spin(100)
  if n % 2 == 0 then error("even") end
  return n
end
local function run_pcall(n) --: run_pcall
  for i = 1, n do pcall(thrower, i) end
end

local function handler(message) --: handler
  spin(150)
  return message
end
local function run_xpcall(n) --: run_xpcall
  for i = 1, n do xpcall(thrower, handler, i) end
end

local function run_traceback(n) --: run_traceback
  for i = 1, n do xpcall(thrower, traceback, i) end
end

-- The VM itself throws: arithmetic on nil.
local function bad_arith(n) --: bad_arith
  spin(50)
  return n + nil
end
local function arith_handler(message) --: arith_handler
  spin(150)
  return message
end
local function run_vm_error(n) --: run_vm_error
  for i = 1, n do xpcall(bad_arith, arith_handler, i) end
end

-- Lua, C, Lua, C that throws; caught two C frames below.
local function throws_in_c(n) --: throws_in_c
  spin(50)
  c_error("from C")
end
local function passes(n) --: passes
  c_call(throws_in_c, n)
end
local function run_through_c(n) --: run_through_c
  for i = 1, n do pcall(passes, i) end
end

local function c_handler(message) --: c_handler
  spin(150)
  return message
end
local function run_c_xpcall(n) --: run_c_xpcall
  for i = 1, n do c_xpcall(throws_in_c, i, c_handler) end
end

while go() do
  local t0 = clock()
  run_pcall(200)
  local t1 = clock()
  run_xpcall(150)
  local t2 = clock()
  run_traceback(100)
  local t3 = clock()
  run_vm_error(80)
  local t4 = clock()
  run_through_c(80)
  local t5 = clock()
  run_c_xpcall(80)
  local t6 = clock()
  add("run_pcall", t1 - t0)
  add("run_xpcall", t2 - t1)
  add("run_traceback", t3 - t2)
  add("run_vm_error", t4 - t3)
  add("run_through_c", t5 - t4)
  add("run_c_xpcall", t6 - t5)
end
