-- SPDX-License-Identifier: Apache-2.0
-- VM C of nested.c: the innermost.
local function spin_c(n) --: spin_c
  local s = 0
  for i = 1, n do s = s + i end
  return s
end

function work(n) --: work_c=work
  spin_c(n)
end
