-- SPDX-License-Identifier: Apache-2.0
-- Recording, exits and flushes: most time goes to lj_trace_ins and
-- lj_trace_exit, where the stack pointer is far below the VM's C frame.
local truth = require("truth")
local go, add, clock = truth.go, truth.add, truth.clock
local flush = jit.flush

-- Many short side traces: the path depends on every bit of i.
local function bits(n) --: bits
  local a, b, c = 0, 0, 0
  for i = 1, n do
    local r = i
    for k = 1, 8 do
      local half = r - r % 2
      if half ~= r then a = a + k else b = b - k end
      if k > 4 and a > b then c = c + 1 end
      r = half * 0.5
    end
    if a > 1000 then a = 0 elseif b < -1000 then b = 0 end
  end
  return a + b + c
end

local function types(n) --: types
  local s, values = 0, { 1, "2", 3.5, true, {}, false }
  for i = 1, n do
    local v = values[i % 6 + 1]
    if v == true then s = s + 1
    elseif v == false then s = s - 1
    elseif v == "2" then s = s + 2
    elseif v == values[5] then s = s * 0.5
    else s = s + v end
  end
  return s
end

local function churn(n) --: churn
  for i = 1, n do
    flush()
    bits(150)
    types(200)
  end
end

while go() do
  local t0 = clock()
  churn(2)
  local t1 = clock()
  bits(500)
  local t2 = clock()
  types(2000)
  local t3 = clock()
  add("churn", t1 - t0)
  add("bits", t2 - t1)
  add("types", t3 - t2)
end
