/*
 * The life of a run. Read `orchestrate` at the foot first: it is the table of contents.
 *
 *   resolve ──> acquire ──> realize ──> provision ──> execute ──> end ──> release
 *
 * A step that fails leaves its error in the walk and the rest is left out, except the last two: the
 * row always ends and the leases are always released. The row ends before the leases are released:
 * a crash in between leaves a finished run whose leases the sweep finds by its status, where the
 * other order would leave a run that looks lost and is started a second time.
 */
#include "run/orchestrator.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "run/prompt.h"
#include "run/realize.h"
#include "run/row.h"
#include "run/select.h"
#include "run/service.h"

#define PROVISION_TIMEOUT_MS 300000
#define RELEASE_TRIES 6

struct walk {
	struct orchestration *o;
	struct run *run;
	struct agent agent; /* empty when the run has none */
	struct project project;
	struct issue issue;
	struct workspace_record workspace;
	bool reuses_workspace;
	struct environment environment;
	struct lease lease;
	struct place place;
	struct execution_target target;
	struct place_realization realization;
	char *cwd;
	struct exec_result result;
	bool executed;    /* result is meaningful */
	struct error err; /* the first failure; later ones never hide it */
	struct run_step_times times;
	struct actor actor;
};

static const char *adapter_type(const struct walk *w)
{
	const char *asked = json_str(json_object_at(w->run->context, "request"), "adapterType");

	if (asked)
		return asked;
	return w->agent.adapter_type ? w->agent.adapter_type : "process";
}

static const char *set_or_null(const char *id)
{
	return id_is_set(id) ? id : NULL;
}

/* Errors of the steps keep the code they were born with unless it is a mere mechanism's. */
static int step_failed(struct error *err, enum error_code code, const char *verb,
		       const struct environment *environment)
{
	error_wrap(err, "could not %s \"%s\" (%s)", verb, environment->name,
		   driver_kind_name(environment->driver));
	return error_recode(err, code);
}

/* The latch also wakes runs that wait when the server stops; that is no cancelling. */
static bool cancelled(const struct walk *w)
{
	return latch_is_set(w->o->cancel_fd) && runs_pause(w->o->runs, 0);
}

/* ---- resolve: who asks, and where it will run ---- */

static int load_context(struct walk *w, struct error *err)
{
	struct db *db = w->o->db;
	struct run *run = w->run;
	const char *workspace_id = run->workspace_id;

	if (id_is_set(run->agent_id)) {
		if (agent_get(db, run->agent_id, &w->agent, err) < 0)
			return err->code == ERR_NOT_FOUND ? error_recode(err, ERR_AGENT_NOT_FOUND)
							  : -1;
		if (agent_ensure_state(db, w->o->clock, &w->agent, err) < 0)
			return -1;
		id_copy(w->actor.agent_id, w->agent.id);
	}
	if (id_is_set(run->issue_id)) {
		if (issue_get(db, run->issue_id, &w->issue, err) < 0)
			return -1;
		if (!id_is_set(workspace_id) &&
		    str_equal(w->issue.execution_workspace_preference, "reuse_existing"))
			workspace_id = w->issue.execution_workspace_id;
	}
	if (!id_is_set(run->project_id))
		id_copy(run->project_id, w->issue.project_id);
	if (id_is_set(run->project_id) && project_get(db, run->project_id, &w->project, err) < 0)
		return -1;
	if (id_is_set(workspace_id)) {
		if (workspace_record_get(db, workspace_id, &w->workspace, err) < 0)
			return -1;
		w->reuses_workspace = workspace_is_reusable(&w->workspace);
	}
	return 0;
}

static int check_environment(struct walk *w, const char *id, struct error *err)
{
	struct environment *e = &w->environment;

	if (environment_get(w->o->db, id, e, err) < 0) {
		if (err->code != ERR_NOT_FOUND)
			return -1;
		return error_set(err, ERR_ENV_NOT_FOUND, "environment \"%s\" was not found", id);
	}
	if (!streq(e->company_id, w->run->company_id))
		return error_set(err, ERR_ENV_NOT_FOUND,
				 "environment \"%s\" does not belong to this company", id);
	if (e->status != ENVIRONMENT_ACTIVE)
		return error_set(err, ERR_ENV_INACTIVE,
				 "environment \"%s\" is %s: make it active again "
				 "or choose another",
				 e->name, environment_status_name(e->status));
	return 0;
}

static int resolve(struct walk *w, struct error *err)
{
	_cleanup_environment_ struct environment local = { 0 };
	_cleanup_json_ json_t *workspace_settings = NULL;
	struct selection s = { 0 };
	const char *id, *source;

	if (load_context(w, err) < 0 ||
	    environment_ensure_local(w->o->db, w->o->clock, w->run->company_id, &local, err) < 0)
		return -1;
	workspace_settings = w->reuses_workspace ? workspace_config(w->workspace.metadata) : NULL;
	s.requested = json_object_get(json_object_at(w->run->context, "request"), "environmentId");
	s.workspace_config = workspace_settings;
	s.issue_settings = w->issue.execution_workspace_settings;
	s.project_policy = w->project.execution_workspace_policy;
	s.agent_default_id = w->agent.default_environment_id;
	s.local_id = local.id;
	id = select_environment(&s, &source);
	if (check_environment(w, id, err) < 0)
		return -1;
	json_put_str(w->run->context, "environmentSource", source);
	w->actor.no_local = json_bool(json_object_at(w->run->context, "request"), "noLocal", false);
	if (w->actor.no_local && w->environment.driver == DRIVER_LOCAL)
		return refuse_local(err);
	/* Refused before anything is leased: what cannot run there must not hold a place there. */
	if (execution_target(adapter_type(w), &w->environment, NULL, &w->target, err) < 0)
		return -1;
	execution_target_clear(&w->target);
	return run_note_environment(w->o->db, w->o->clock, w->run->id, w->environment.id, err);
}

/* ---- acquire: a leased place, and the row says `running` ---- */

static void note_waiting(void *arg, const char *reason)
{
	struct walk *w = arg;
	_cleanup_error_ struct error ignored = { 0 };

	if (run_note_waiting(w->o->db, w->o->clock, w->run->id, reason, &ignored) < 0)
		log_warn("run %s waits (%s), which could not be recorded: %s", w->run->id, reason,
			 ignored.message);
	runs_notify(w->o->runs, w->run->id);
}

static int acquire(struct walk *w, struct error *err)
{
	const struct lease_request request = {
		.company_id = w->run->company_id,
		.environment = &w->environment,
		.run_id = w->run->id,
		.issue_id = set_or_null(w->run->issue_id),
		.agent_id = set_or_null(w->run->agent_id),
		.workspace_id = set_or_null(w->workspace.id),
		.workspace_mode = w->workspace.mode,
		.wait_ms = -1,
		.cancel_fd = w->o->cancel_fd,
		.actor = &w->actor,
		.on_wait = note_waiting,
		.on_wait_arg = w,
	};

	if (lease_acquire(w->o->leases, &request, &w->lease, &w->place, err) < 0)
		return -1;
	if (run_note_running(w->o->db, w->o->clock, w->o->runs->node, w->run->id, &w->lease, err) <
	    0)
		return -1;
	id_copy(w->run->lease_id, w->lease.id);
	runs_notify(w->o->runs, w->run->id);
	return 0;
}

/* ---- realize: the workspace is where the place expects it ---- */

/* Directories of agents that brought none; made on first use, kept between runs. */
static int home_directory(struct walk *w, char **path, struct error *err)
{
	const char *owner = id_is_set(w->run->agent_id) ? w->run->agent_id : w->run->company_id;
	_cleanup_free_ char *home = path_join(w->o->home_path, owner);

	if (dir_make(AT_FDCWD, home, 0700, err) < 0)
		return -1;
	*path = steal(home);
	return 0;
}

static int local_directory(struct walk *w, char **path, struct error *err)
{
	struct stat st;

	if (w->run->cwd)
		*path = xstrdup(w->run->cwd);
	else if (!str_blank(w->workspace.cwd))
		*path = xstrdup(w->workspace.cwd);
	else
		return home_directory(w, path, err);
	if (w->environment.driver != DRIVER_LOCAL)
		return 0;
	if (stat(*path, &st) < 0)
		return error_errno(err, errno, "working directory \"%s\"", *path);
	if (!S_ISDIR(st.st_mode))
		return error_set(err, ERR_REALIZE, "working directory \"%s\" is not a directory",
				 *path);
	return 0;
}

static int keep_realization(struct walk *w, const json_t *request, struct error *err)
{
	json_t *record = json_object_at(w->realization.metadata, "workspaceRealization");
	_cleanup_json_ json_t *metadata = NULL;

	if (!record || json_object_size(record) == 0)
		return 0;
	json_put_ref(w->lease.metadata, "workspaceRealization", record);
	if (lease_set_metadata(w->o->leases, w->lease.id, w->lease.metadata, err) < 0)
		return -1;
	if (!id_is_set(w->workspace.id))
		return 0;
	metadata = w->workspace.metadata ? json_copy(w->workspace.metadata) : json_object();
	json_put_ref(metadata, "workspaceRealizationRequest", (json_t *)request);
	json_put_ref(metadata, "workspaceRealization", record);
	return workspace_record_set_metadata(w->o->db, w->o->clock, w->workspace.id, metadata, err);
}

static int realize(struct walk *w, struct error *err)
{
	_cleanup_free_ char *local_path = NULL;
	_cleanup_json_ json_t *request = NULL;
	struct place_workspace workspace = { .mode = w->workspace.mode };

	if (local_directory(w, &local_path, err) < 0)
		return step_failed(err, ERR_REALIZE, "realize", &w->environment);
	request = realization_request(&(struct realization_source){
		.adapter_type = adapter_type(w),
		.run = w->run,
		.environment_id = w->environment.id,
		.workspace = id_is_set(w->workspace.id) ? &w->workspace : NULL,
		.local_path = local_path,
	});
	workspace.local_path = local_path;
	workspace.remote_path = json_str_nonblank(w->lease.metadata, "remoteCwd");
	workspace.request = request;
	if (driver_realize(w->o->drivers, &w->place, w->lease.id, &workspace, &w->realization,
			   err) < 0)
		return step_failed(err, ERR_REALIZE, "realize", &w->environment);
	if (execution_target(adapter_type(w), &w->environment, w->lease.metadata, &w->target, err) <
	    0)
		return -1;
	if (w->environment.driver != DRIVER_LOCAL && w->run->cwd)
		w->cwd = xstrdup(w->run->cwd);
	else if (!str_blank(w->realization.cwd))
		w->cwd = str_trimmed(w->realization.cwd);
	else
		w->cwd = xstrdup(w->target.remote ? w->target.remote_cwd : local_path);
	return keep_realization(w, request, err);
}

/* ---- provision: the workspace's own command, once its files are there ---- */

static int provision(struct walk *w, struct error *err)
{
	_cleanup_json_ json_t *config = workspace_config(w->workspace.metadata);
	const char *command = json_str_nonblank(config, "provisionCommand");
	_cleanup_free_ char *trimmed = command ? str_trimmed(command) : NULL;
	_cleanup_free_ char *detail = NULL;
	struct provision p = { .place = &w->place,
			       .generation = w->lease.generation,
			       .run_id = w->run->id,
			       .cwd = w->cwd,
			       .timeout_ms = PROVISION_TIMEOUT_MS };

	if (!trimmed || w->environment.driver == DRIVER_LOCAL)
		return 0;
	if (cancelled(w))
		return error_set(err, ERR_CANCELLED,
				 "cancelled before the workspace was provisioned");
	p.command = trimmed;
	if (provision_run(w->o, &p, &detail, err) < 0)
		return step_failed(err, ERR_REALIZE, "provision", &w->environment);
	if (detail && cancelled(w))
		return error_set(err, ERR_CANCELLED,
				 "cancelled while the workspace was provisioned");
	if (detail) {
		error_set(err, ERR_REALIZE, "%s", detail);
		return step_failed(err, ERR_REALIZE, "provision", &w->environment);
	}
	return 0;
}

/* ---- execute: the command, its output to the log ---- */

/*
 * The token by which the run's process speaks to the API as its agent; NULL when it has none, or
 * brings a key of its own.
 */
static char *run_token(const struct walk *w)
{
	const struct run *run = w->run;
	struct run_claims claims = { .issued_at = clock_now(w->o->clock) };

	if (!w->o->token_key || !id_is_set(run->agent_id) || json_str(run->env, "BERTH_API_KEY") ||
	    json_str(run->env, "PAPERCLIP_API_KEY"))
		return NULL;
	id_copy(claims.agent_id, run->agent_id);
	id_copy(claims.company_id, run->company_id);
	id_copy(claims.run_id, run->id);
	snprintf(claims.adapter_type, sizeof(claims.adapter_type), "%s", adapter_type(w));
	/* It ends with the run; the time is for when nobody could say any more that it has. */
	claims.expires_at = claims.issued_at + MAX_OF(RUN_TOKEN_TTL_MS, run->timeout_ms * 2);
	return run_token_make(w->o->token_key, &claims);
}

/* Variables may be secrets. */
static void env_free(char ***env)
{
	for (char **at = *env; at && *at; at++)
		wipe(*at, strlen(*at));
	strv_free(*env);
}

static char **command_env(const struct walk *w)
{
	_cleanup_free_ char *token = run_token(w);
	const char *const ours[][2] = {
		{ "RUN_ID", w->run->id },
		{ "COMPANY_ID", w->run->company_id },
		{ "AGENT_ID", set_or_null(w->run->agent_id) },
		{ "WORKSPACE", w->cwd },
		{ "API_URL", w->o->api_url },
		{ "API_KEY", token },
	};
	char **env = NULL;
	const char *key;
	json_t *value;

	json_object_foreach (w->project.env, key, value) {
		if (!json_object_get(w->run->env, key))
			strv_push(&env, xasprintf("%s=%s", key, json_string_value(value)));
	}
	json_object_foreach (w->run->env, key, value) {
		strv_push(&env, xasprintf("%s=%s", key, json_string_value(value)));
	}
	for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
		if (!ours[i][1])
			continue;
		strv_push(&env, xasprintf("BERTH_%s=%s", ours[i][0], ours[i][1]));
		strv_push(&env, xasprintf("PAPERCLIP_%s=%s", ours[i][0], ours[i][1]));
	}
	if (token)
		wipe(token, strlen(token));
	return env;
}

/* The command is going in the place, whoever started it: its output to the log until it has ended.
 */
static int follow_exec(struct walk *w, struct exec *exec, struct runlog *log, struct error *err)
{
	int outcome;

	if (cancelled(w))
		executor_cancel(w->o->executor, w->run->id, EXEC_CANCELLED, false);
	outcome = exec_wait(exec, &w->result, err);
	w->executed = outcome == 0;
	w->run->log_bytes = runlog_end(log);
	return outcome;
}

/* No relay will tell whether it ran: without a note a later server would run it a second time. */
static int leave_out(struct walk *w, struct exec *exec, struct error *why, struct error *err)
{
	struct exec_result ignored;

	executor_cancel(w->o->executor, w->run->id, EXEC_CANCELLED, true);
	exec_wait(exec, &ignored, NULL);
	error_move(err, why);
	return -1;
}

static int execute(struct walk *w, struct error *err)
{
	const json_t *tty = json_object_at(json_object_at(w->run->context, "request"), "tty");
	const struct exec_terminal terminal = {
		.rows = (uint16_t)json_int(tty, "rows", 24),
		.cols = (uint16_t)json_int(tty, "cols", 80),
		.term = json_str(tty, "term"),
	};
	_cleanup_(env_free) char **env = command_env(w);
	struct runlog *log = NULL;
	struct exec *exec = NULL;
	struct exec_spec spec = {
		.exec_id = w->run->id,
		.place_id = w->place.id,
		.generation = w->lease.generation,
		.argv = w->run->command,
		.env = env,
		.terminal = tty ? &terminal : NULL,
		.stdin_stream = tty != NULL, /* somebody will come and type */
		.cwd = w->cwd,
		.stdin_data = w->run->stdin_data,
		.stdin_len = w->run->stdin_len,
		.timeout_ms = run_time_limit(w->run),
		/* Until the row says how it ended; the relay itself ends with the lease after that.
		 */
		.keep_exit = true,
	};
	int outcome;

	if (cancelled(w))
		return error_set(err, ERR_CANCELLED, "cancelled before the command began");
	if (runlog_open(w->o->logs, w->run->id, &log, err) < 0)
		return -1;
	spec.log = log;
	outcome = driver_start(w->o->drivers, &w->place, &spec, &exec, err);
	if (outcome == 0) {
		_cleanup_error_ struct error unrecorded = { 0 };

		/* Says that the command has begun: a run that had not is simply run again. */
		if (run_note_process(w->o->db, w->o->clock, w->run->id, exec_pid(exec),
				     &unrecorded) < 0)
			log_warn("run %s: process not recorded: %s", w->run->id,
				 unrecorded.message);
		runs_notify(w->o->runs, w->run->id);
		if (unrecorded.code != ERR_NONE && exec_pid(exec) < 0)
			outcome = leave_out(w, exec, &unrecorded, err);
		else
			outcome = follow_exec(w, exec, log, err);
	}
	runlog_close(log);
	return outcome;
}

/* ---- end and release ---- */

/* What the steps left behind, as a row's last words. `text` receives a message that needs building.
 */
static void describe_exit(const struct walk *w, struct run_ending *end, char **text)
{
	const struct exec_result *r = &w->result;

	end->reason = exec_reason_name(r->reason);
	end->has_exit_code = r->exit_code >= 0;
	end->exit_code = r->exit_code;
	end->signal = r->signal[0] ? r->signal : NULL;
	switch (r->reason) {
	case EXEC_EXITED:
		if (r->exit_code == 0) {
			end->status = RUN_SUCCEEDED;
			return;
		}
		*text = xasprintf("the command exited with code %d", r->exit_code);
		end->error_code = "adapter_failed";
		break;
	case EXEC_TIMEOUT:
		end->status = RUN_TIMED_OUT;
		*text = xasprintf("the command ran longer than %lld ms and was ended",
				  (long long)run_time_limit(w->run));
		end->error_code = error_code_name(ERR_TIMEOUT);
		break;
	case EXEC_CANCELLED:
		end->status = RUN_CANCELLED;
		*text = xstrdup("cancelled");
		end->error_code = error_code_name(ERR_CANCELLED);
		break;
	case EXEC_LEASE_LOST:
		*text = xstrdup("the lease ended while the command was running");
		end->error_code = error_code_name(ERR_LEASE_LOST);
		break;
	default:
		*text = xasprintf("the command was ended by %s",
				  r->signal[0] ? r->signal : "a signal");
		end->error_code = "adapter_failed";
		break;
	}
	end->error = *text;
}

static void describe_error(const struct walk *w, struct run_ending *end)
{
	end->error = w->err.message;
	end->error_code = error_code_name(w->err.code);
	switch (w->err.code) {
	case ERR_CANCELLED:
		end->status = RUN_CANCELLED;
		end->reason = exec_reason_name(EXEC_CANCELLED);
		break;
	case ERR_COMMAND_NOT_FOUND:
	case ERR_COMMAND_DENIED:
		end->has_exit_code = true;
		end->exit_code = w->err.code == ERR_COMMAND_NOT_FOUND ? 127 : 126;
		end->reason = exec_reason_name(EXEC_EXITED);
		break;
	default:
		break;
	}
}

/* A database that refuses does not change what happened: try until it takes it or the server stops.
 */
static void write_ending(struct walk *w, const struct run_ending *end)
{
	int64_t pause_ms = 50;

	for (;;) {
		_cleanup_error_ struct error err = { 0 };

		if (run_note_end(w->o->db, w->o->clock, w->run->id, end, w->run->log_bytes, &err) >=
		    0)
			return;
		log_error("run %s ended %s, which could not be recorded: %s", w->run->id,
			  run_status_name(end->status), err.message);
		if (!runs_pause(w->o->runs, pause_ms))
			return;
		pause_ms = MIN_OF(pause_ms * 2, 5000);
	}
}

static void end(struct walk *w)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_error_ struct error ignored = { 0 };
	struct run_ending ending = { .status = RUN_FAILED };

	if (w->executed)
		describe_exit(w, &ending, &text);
	else
		describe_error(w, &ending);
	w->run->status = ending.status;
	write_ending(w, &ending);
	runs_notify(w->o->runs, w->run->id);
	if (id_is_set(w->agent.id) &&
	    agent_note_run(w->o->db, w->o->clock, w->agent.id, w->run->id,
			   run_status_name(ending.status), ending.error, &ignored) < 0)
		log_warn("agent %s: state not recorded: %s", w->agent.id, ignored.message);
}

enum lease_status lease_status_for_run(enum run_status status)
{
	return status == RUN_FAILED || status == RUN_TIMED_OUT ? LEASE_FAILED : LEASE_RELEASED;
}

/* Every lease has left `active`: what is left to do for its place is in the cleanup queue. */
static bool all_ended(const json_t *report)
{
	const json_t *entry;
	size_t i;

	json_array_foreach (report, i, entry) {
		if (json_str(entry, "error"))
			return false;
	}
	return report != NULL;
}

/*
 * Cleanup trouble is the lease room's to retry; it never changes what the run came to. Only if the
 * database refuses the end of a holding it is tried again here, because the sweep gives a run that
 * has just ended its time.
 */
static void release(struct walk *w)
{
	enum lease_status status = lease_status_for_run(w->run->status);
	int64_t pause_ms = 50;

	for (int tries = 0; tries < RELEASE_TRIES; tries++) {
		_cleanup_error_ struct error err = { 0 };
		_cleanup_json_ json_t *report =
			lease_release_run(w->o->leases, w->run->id, status, NULL, &w->actor, &err);

		if (all_ended(report))
			return;
		log_warn("run %s: leases not released yet: %s", w->run->id,
			 report ? "the database refused" : err.message);
		if (!runs_pause(w->o->runs, pause_ms))
			return;
		pause_ms *= 2;
	}
}

static void keep_timings(struct walk *w, int64_t total_ms)
{
	_cleanup_json_ json_t *timings = json_object();
	_cleanup_error_ struct error err = { 0 };

	json_put_int(timings, "acquiredMs", w->times.acquired_ms);
	json_put_int(timings, "realizedMs", w->times.realized_ms);
	json_put_int(timings, "provisionedMs", w->times.provisioned_ms);
	json_put_int(timings, "executedMs", w->times.executed_ms);
	json_put_int(timings, "releasedMs", w->times.released_ms);
	json_put_int(timings, "totalMs", total_ms);
	if (run_note_timings(w->o->db, w->o->clock, w->run->id, timings, &err) < 0)
		log_warn("run %s: timings not recorded: %s", w->run->id, err.message);
	runs_notify(w->o->runs, w->run->id);
}

/* What later readers of the run want to know about where it ran. */
static int describe_place(struct walk *w, struct error *err)
{
	json_t *about = json_object();
	const json_t *m = w->lease.metadata;
	static const char *const KEYS[] = { "remoteCwd", "host", "port", "username" };

	json_put_str(about, "id", w->environment.id);
	json_put_str(about, "name", w->environment.name);
	json_put_str(about, "driver", driver_kind_name(w->environment.driver));
	json_put_str(about, "leaseId", w->lease.id);
	json_put_ref(about, "workspaceRealization",
		     json_object_at(w->realization.metadata, "workspaceRealization"));
	if (json_str(m, "remoteCwd")) {
		for (size_t i = 0; i < ARRAY_SIZE(KEYS); i++) {
			if (json_object_get(m, KEYS[i]))
				json_put_ref(about, KEYS[i], json_object_get(m, KEYS[i]));
		}
	}
	json_put_new(w->run->context, "paperclipEnvironment", about);
	json_put_new(w->run->context, "executionTarget",
		     execution_target_json(&w->target, &w->environment, w->lease.id));
	return run_note_context(w->o->db, w->o->clock, w->run->id, w->run->context, err);
}

static void walk_clear(struct walk *w)
{
	agent_clear(&w->agent);
	project_clear(&w->project);
	issue_clear(&w->issue);
	workspace_record_clear(&w->workspace);
	environment_clear(&w->environment);
	lease_clear(&w->lease);
	place_clear(&w->place);
	execution_target_clear(&w->target);
	place_realization_clear(&w->realization);
	free(w->cwd);
	error_clear(&w->err);
}

typedef int step_fn(struct walk *w, struct error *err);

/* Runs a step unless an earlier one failed, and adds its duration. */
static void step(struct walk *w, step_fn *fn, int64_t *took_ms)
{
	int64_t begin = clock_mono(w->o->clock);

	if (w->err.code == ERR_NONE && fn(w, &w->err) < 0 && w->err.code == ERR_NONE)
		error_set(&w->err, ERR_INTERNAL, "a step failed without saying why");
	*took_ms += clock_mono(w->o->clock) - begin;
}

/*
 * The server goes, and nobody asked for the run's end. It is left as it is, as if the server had
 * been killed: queued, or running in the care of its relay. The next server takes it up.
 */
static bool is_left_behind(const struct walk *w)
{
	return (w->err.code == ERR_CANCELLED || w->err.code == ERR_UNAVAILABLE) &&
	       !runs_pause(w->o->runs, 0);
}

static void finish(struct walk *w, int64_t begin)
{
	struct orchestration *o = w->o;
	int64_t before_release;

	if (!is_left_behind(w)) {
		end(w);
		before_release = clock_mono(o->clock);
		release(w);
		w->times.released_ms = clock_mono(o->clock) - before_release;
		keep_timings(w, clock_mono(o->clock) - begin);
	}
	walk_clear(w);
}

void orchestrate(struct orchestration *o, struct run *run)
{
	struct walk w = { .o = o, .run = run, .actor = ACTOR_SYSTEM };
	int64_t begin = clock_mono(o->clock);

	id_copy(w.actor.run_id, run->id);
	step(&w, resolve, &w.times.acquired_ms);
	step(&w, acquire, &w.times.acquired_ms);
	step(&w, realize, &w.times.realized_ms);
	step(&w, describe_place, &w.times.realized_ms);
	step(&w, provision, &w.times.provisioned_ms);
	step(&w, execute, &w.times.executed_ms);
	finish(&w, begin);
}

void orchestrate_adopted(struct orchestration *o, struct run *run, struct exec *exec,
			 struct runlog *log)
{
	struct walk w = { .o = o, .run = run, .actor = ACTOR_SYSTEM };
	int64_t begin = clock_mono(o->clock);
	_cleanup_error_ struct error ignored = { 0 };

	id_copy(w.actor.run_id, run->id);
	if (id_is_set(run->agent_id) && agent_get(o->db, run->agent_id, &w.agent, &ignored) == 0)
		id_copy(w.actor.agent_id, w.agent.id);
	follow_exec(&w, exec, log, &w.err);
	runlog_close(log);
	w.times.executed_ms = w.executed ? w.result.duration_ms : 0;
	finish(&w, begin);
}
