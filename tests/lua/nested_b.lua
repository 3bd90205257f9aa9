-- SPDX-License-Identifier: Apache-2.0
-- VM B of nested.c: called by VM A, calls VM A again.
local in_a = in_a

local function spin_b(n) --: spin_b
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

local function work_b(n) --: work_b
  spin_b(n)
  in_a(n)
end
work = work_b
