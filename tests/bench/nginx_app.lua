-- SPDX-License-Identifier: Apache-2.0
-- What the nginx of the benchmarks serves: a page made by string work below
-- a few calls, and one that resumes many coroutines.
local concat, sort, gsub, format = table.concat, table.sort, string.gsub,
  string.format
local pcall = pcall
local served = 0
local M = {}

local function escape(text)
  return (gsub(text, "[<>&]", { ["<"] = "&lt;", [">"] = "&gt;",
                                ["&"] = "&amp;" }))
end

local function by_price(a, b)
  if a.price ~= b.price then return a.price < b.price end
  return a.name < b.name
end

local function load_items(n)
  local items = {}
  for i = 1, n do
    items[i] = { name = "item <" .. i .. ">", price = (i * 7919) % 101 }
  end
  return items
end

local function fill(template, values)
  return (gsub(template, "{(%w+)}", function(key)
    return escape(tostring(values[key]))
  end))
end

local function render(items)
  local out = {}
  for i = 1, #items do
    out[i] = fill("<li>{name}: {price}</li>", items[i])
  end
  return concat(out, "\n")
end

local function handle()
  local items = load_items(50)
  sort(items, by_price)
  return format("<ul>\n%s\n</ul>\n", render(items))
end

function M.page()
  served = served + 1
  local ok, body = pcall(handle)
  ngx.print(ok and body or "error")
end

-- Each resume and yield passes through nginx: 20 of them a request.
local function numbers(n)
  return coroutine.wrap(function()
    for i = 1, n do coroutine.yield(i) end
  end)
end

function M.coroutines()
  served = served + 1
  local next_number, sum = numbers(20), 0
  for _ = 1, 20 do sum = sum + next_number() end
  ngx.print(sum, "\n")
end

function M.count()
  return served
end

return M
