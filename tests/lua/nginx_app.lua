-- SPDX-License-Identifier: Apache-2.0
-- The module of the nginx test: a handler that computes, fills a template by
-- a gsub callback, asks a subrequest and runs light threads; and a timer.
local capture, say = ngx.location.capture, ngx.say
local spawn, wait, sleep = ngx.thread.spawn, ngx.thread.wait, ngx.sleep
local gsub, format = string.gsub, string.format

local M = {}

local function compute(n) --: compute
  local s = 0
  for i = 1, n do s = s + i * 0.5 end
  return s
end

local function replace(key) --: replace
  local text = format("%d", compute(300) % #key)
  return text
end

local TEMPLATE = ("<p>{name} is {age} years old and lives in {town}</p>"):rep(5)
local function template() --: template
  local text = gsub(TEMPLATE, "{(%w+)}", replace)
  return text
end

local function thread_body(n) --: thread_body
  local s = compute(n)
  sleep(0.001)
  return s + compute(n)
end

local function threads() --: threads
  local a, b = spawn(thread_body, 2000), spawn(thread_body, 3000)
  wait(a)
  wait(b)
end

local function subrequest() --: subrequest
  local response = capture("/sub")
  return #response.body
end

-- Set as a field of a module that stays loaded: its name in a stack may be
-- how it is written here or where it is found.
function M.handle() --: handle=M.handle
  local text = template()
  local size = subrequest()
  threads()
  compute(5000)
  say(text, size)
end

function M.sub() --: sub=M.sub
  local s = compute(4000)
  say(s)
end

local function tick(premature) --: tick
  if not premature then compute(20000) end
end

function M.start_timer() --: start_timer=M.start_timer
  ngx.timer.every(0.01, tick)
end

return M
