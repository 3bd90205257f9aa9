-- SPDX-License-Identifier: Apache-2.0
-- Two Lua functions reached through the very same native stack (main, host_run,
-- lua_pcall, c_call, lua_call): only the Lua frames tell 70 % from 30 %.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local c_call = c_call

local function seventy(n) --: seventy
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function thirty(n) --: thirty
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function dispatch(f, n) --: dispatch
  local s = c_call(f, n)
  return s
end

local scale = jit.status() and 10000 or 1000
while go() do
  local t0 = clock()
  dispatch(seventy, 70 * scale)
  local t1 = clock()
  dispatch(thirty, 30 * scale)
  local t2 = clock()
  add("seventy", t1 - t0)
  add("thirty", t2 - t1)
end
