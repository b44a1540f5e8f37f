-- Checks the job of tierfeed and builds the index of its dataset before the batch job gets its nodes.
--
-- Site: put this file beside slurm.conf, and BurstBufferType=burst_buffer/lua into slurm.conf.
-- User: #BB_LUA tierfeed job=/PATH/job.yaml
--
-- A job file that is wrong ends the batch job here, and the index that it names (key `index`) is there when the
-- first node asks for it. The commands run as the user of the batch job, on the host of slurmctld.

local TIERFEED = "/usr/local/bin/tierfeed"

local function job_file(job_script)
    local script = io.open(job_script, "r")
    if script == nil then return nil end
    local found = nil
    for line in script:lines() do
        found = found or line:match("^#BB_LUA%s+tierfeed%s+job=(%S+)")
    end
    script:close()
    return found
end

local function quoted(text)
    return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- Called when a batch job is submitted.
function slurm_bb_job_process(job_script)
    local file = job_file(job_script)
    if file == nil or file:sub(1, 1) ~= "/" then
        return slurm.ERROR, "write #BB_LUA tierfeed job=/PATH/job.yaml"
    end
    return slurm.SUCCESS
end

-- Called before the batch job gets its nodes; an error holds it.
function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script)
    local file = job_file(job_script)
    if file == nil then return slurm.ERROR, "no #BB_LUA tierfeed" end
    local analyze = TIERFEED .. " analyze " .. quoted(file) .. " 2>&1"
    local user = string.format("setpriv --reuid=%d --regid=%d --init-groups ", uid, gid)
    local process = io.popen("cd / && " .. user .. analyze .. "; echo \"code $?\"", "r")
    local said = process:read("*a")
    process:close()
    if said:match("code 0%s*$") then return slurm.SUCCESS end
    return slurm.ERROR, said
end

-- Nothing is moved before or after the job: agents read the dataset themselves.
function slurm_bb_pools() return slurm.SUCCESS end
function slurm_bb_data_in() return slurm.SUCCESS end
function slurm_bb_test_data_in() return slurm.SUCCESS, "" end
function slurm_bb_real_size() return slurm.SUCCESS, "0" end
function slurm_bb_paths() return slurm.SUCCESS end
function slurm_bb_pre_run() return slurm.SUCCESS end
function slurm_bb_post_run() return slurm.SUCCESS end
function slurm_bb_data_out() return slurm.SUCCESS end
function slurm_bb_test_data_out() return slurm.SUCCESS, "" end
function slurm_bb_job_teardown() return slurm.SUCCESS end
function slurm_bb_get_status() return slurm.SUCCESS, "tierfeed" end
