-- SPDX-License-Identifier: Apache-2.0
-- VM B of nested.c: called by VM A, calls VM C, or VM A again.
local inward = REENTER and in_a or in_c

local function spin_b(n) --: spin_b
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

function work(n) --: work_b=work
  spin_b(n)
  inward(n)
end
