#include "run/realize.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "run/job.h"
#include "run/row.h"

static void put_text(json_t *object, const char *key, const char *value)
{
	json_put_str(object, key, str_blank(value) ? NULL : value);
}

static json_t *source_json(const struct realization_source *s)
{
	const struct workspace_record *ws = s->workspace;
	bool worktree = ws && str_equal(ws->strategy_type, "git_worktree");
	json_t *source = json_object();

	json_put_str(source, "kind",
		     ws            ? "project_primary"
		     : s->run->cwd ? "task_session"
				   : "agent_home");
	json_put_str(source, "localPath", s->local_path);
	put_text(source, "projectId", s->run->project_id);
	json_put_str(source, "projectWorkspaceId", NULL);
	put_text(source, "repoUrl", ws ? ws->repo_url : NULL);
	put_text(source, "repoRef", ws ? ws->base_ref : NULL);
	json_put_str(source, "strategy", worktree ? "git_worktree" : "project_primary");
	put_text(source, "branchName", ws ? ws->branch_name : NULL);
	put_text(source, "worktreePath", worktree ? ws->cwd : NULL);
	return source;
}

static json_t *overlay_json(const json_t *config)
{
	static const char *const COMMANDS[] = { "provisionCommand", "teardownCommand",
						"cleanupCommand" };
	json_t *overlay = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(COMMANDS); i++)
		json_put_str(overlay, COMMANDS[i], json_str_nonblank(config, COMMANDS[i]));
	json_put_ref(overlay, "workspaceRuntime", json_object_at(config, "workspaceRuntime"));
	return overlay;
}

json_t *realization_request(const struct realization_source *s)
{
	_cleanup_json_ json_t *config =
		s->workspace ? workspace_config(s->workspace->metadata) : NULL;
	json_t *request = json_object();

	json_put_int(request, "version", 1);
	json_put_str(request, "adapterType", s->adapter_type);
	json_put_str(request, "companyId", s->run->company_id);
	json_put_str(request, "environmentId", s->environment_id);
	put_text(request, "executionWorkspaceId", s->workspace ? s->workspace->id : NULL);
	put_text(request, "issueId", s->run->issue_id);
	json_put_str(request, "heartbeatRunId", s->run->id);
	json_put_str(request, "requestedMode", s->workspace ? s->workspace->mode : NULL);
	json_put_new(request, "source", source_json(s));
	json_put_new(request, "runtimeOverlay", overlay_json(config));
	return request;
}

/* ---- realize: the workspace is where the place expects it ---- */

/* Directories of agents that brought none; made on first use, kept between runs. */
static int home_directory(struct run_job *w, char **path, struct error *err)
{
	const char *owner = id_is_set(w->run->agent_id) ? w->run->agent_id : w->run->company_id;
	_cleanup_free_ char *home = path_join(w->o->home_path, owner);

	if (dir_make(AT_FDCWD, home, 0700, err) < 0)
		return -1;
	*path = steal(home);
	return 0;
}

static int local_directory(struct run_job *w, char **path, struct error *err)
{
	struct stat st;

	if (w->files.path)
		*path = xstrdup(w->files.path);
	else if (w->run->cwd)
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

int job_realize(struct run_job *w, struct error *err)
{
	_cleanup_free_ char *local_path = NULL;
	struct place_workspace workspace = { .mode = w->workspace.mode };

	if (local_directory(w, &local_path, err) < 0)
		return step_failed(err, ERR_REALIZE, "realize", &w->environment);
	w->request = realization_request(&(struct realization_source){
		.adapter_type = job_adapter(w),
		.run = w->run,
		.environment_id = w->environment.id,
		.workspace = id_is_set(w->workspace.id) ? &w->workspace : NULL,
		.local_path = local_path,
	});
	workspace.local_path = local_path;
	workspace.remote_path = json_str_nonblank(w->lease.metadata, "remoteCwd");
	workspace.request = w->request;
	if (maker_realize(w->o->makers, &w->place, w->lease.id, &workspace, &w->realization, err) <
	    0)
		return step_failed(err, ERR_REALIZE, "realize", &w->environment);
	/* What cannot run there was refused before the lease: here the place itself is wrong. */
	if (execution_target(job_adapter(w), &w->environment, w->lease.metadata, &w->target, err) <
	    0)
		return step_failed(err, ERR_TRANSPORT, "reach", &w->environment);
	if (w->run->cwd && (w->environment.driver != DRIVER_LOCAL || w->files.path))
		w->cwd = xstrdup(w->run->cwd);
	else if (!str_blank(w->realization.cwd))
		w->cwd = str_trimmed(w->realization.cwd);
	else
		w->cwd = xstrdup(w->target.remote ? w->target.remote_cwd : local_path);
	return 0;
}

/* ---- what is kept of it ---- */

/* By the words of spec 01 E.5, what really became of the files. */
static const struct {
	const char *strategy, *prepare, *sync_back, *summary;
} SYNC[] = {
	[MODE_AUTO] = { "none", "No files are brought to the place.", NULL,
			"No files of this host are in the place." },
	[MODE_COPY] = { "sandbox_archive_upload_download",
			"The files of the workspace that no rule ignores are copied into the "
			"place.",
			"What the run changed is fetched when it has ended, and merged into the "
			"workspace: nobody else's changes are touched.",
			"The workspace was copied into the place." },
	[MODE_OVERLAY] = { "provider_defined",
			   "The place sees the workspace under a layer of its own, which takes all "
			   "writes; nothing is copied.",
			   "The layer is fetched when the run has ended, and merged into the "
			   "workspace: nobody else's changes are touched.",
			   "The place sees the workspace through a layer of its own." },
	[MODE_IN_PLACE] = { "none", "The workspace is used where it is.", NULL,
			    "The workspace is used where it is." },
	[MODE_WORKTREE] = { "provider_defined",
			    "A git worktree of the workspace, made for this run, is in the place.",
			    "What the run changed stays on the branch of the worktree.",
			    "The place has a git worktree of the workspace." },
};

/* The driver knows how its places get files in general; the run knows what was done. */
static void correct_sync(const struct run_job *w, json_t *record)
{
	enum workspace_mode mode = w->files.path ? w->files.mode : MODE_AUTO;
	json_t *sync;

	if (w->environment.driver == DRIVER_LOCAL && !w->files.path)
		return;
	sync = json_object();
	json_put_str(sync, "strategy", SYNC[mode].strategy);
	json_put_str(sync, "prepare", SYNC[mode].prepare);
	json_put_str(sync, "syncBack",
		     w->files.path && !w->files.collect && SYNC[mode].sync_back
			     ? "What the run changed is fetched when it has ended, and kept until "
			       "somebody collects it."
			     : SYNC[mode].sync_back);
	json_put_new(record, "sync", sync);
	json_put_str(record, "summary", SYNC[mode].summary);
	if (w->files.path)
		json_put_str(json_object_at(record, "remote"), "path", w->files.place_root);
}

/* *metadata of the lease, if the driver has told anything new; NULL: it stays. */
static int keep_realization(struct run_job *w, const json_t **lease_metadata, struct error *err)
{
	json_t *record = json_object_at(w->realization.metadata, "workspaceRealization");
	_cleanup_json_ json_t *metadata = NULL;

	*lease_metadata = NULL;
	if (!record || json_object_size(record) == 0)
		return 0;
	correct_sync(w, record);
	json_put_ref(w->lease.metadata, "workspaceRealization", record);
	*lease_metadata = w->lease.metadata;
	if (!id_is_set(w->workspace.id))
		return 0;
	metadata = w->workspace.metadata ? json_copy(w->workspace.metadata) : json_object();
	json_put_ref(metadata, "workspaceRealizationRequest", w->request);
	json_put_ref(metadata, "workspaceRealization", record);
	return workspace_record_set_metadata(w->o->db, w->o->clock, w->workspace.id, metadata, err);
}

/* What later readers of the run want to know about where it ran, and that its files are there. */
int job_describe_place(struct run_job *w, struct error *err)
{
	json_t *about = json_object();
	const json_t *m = w->lease.metadata;
	static const char *const KEYS[] = { "remoteCwd", "host", "port", "username" };
	struct run_staged staged = { .lease_id = w->lease.id, .context = w->run->context };

	if (keep_realization(w, &staged.metadata, err) < 0) {
		json_decref(about);
		return -1;
	}
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
	staged.files = w->report.text ? &w->report : NULL;
	if (run_set_staged(w->o->db, w->o->clock, w->run->id, &staged, err) < 0)
		return -1;
	runs_notify(w->o->runs, w->run->id);
	return 0;
}

/* ---- provision ---- */

/* The first line with something in it, of one stream of a log. */
static char *first_line(struct runlog_store *logs, const char *name, enum runlog_stream stream)
{
	struct runlog_reader *reader = NULL;
	struct runlog_chunk chunk;
	_cleanup_buf_ struct buf text = { .max = 4096 };
	char *line, *rest = NULL;

	if (runlog_reader_open(logs, name, 0, &reader, NULL) < 0)
		return NULL;
	while (text.len < 2048 && runlog_read(reader, 1024, &chunk, NULL) > 0) {
		if (chunk.stream == stream)
			buf_append(&text, chunk.data, chunk.len);
	}
	runlog_reader_close(reader);
	if (text.len == 0)
		return NULL;
	for (line = strtok_r(text.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!str_blank(line))
			return str_trimmed(line);
	}
	return NULL;
}

static char *describe_failure(struct runlog_store *logs, const char *name,
			      const struct exec_result *r)
{
	_cleanup_free_ char *line = NULL;
	_cleanup_buf_ struct buf text = { 0 };

	if (r->reason == EXEC_EXITED && r->exit_code == 0)
		return NULL;
	if (r->reason == EXEC_TIMEOUT)
		return xstrdup("the provision command timed out");
	if (r->exit_code >= 0)
		buf_printf(&text, "exit code %d", r->exit_code);
	else
		buf_puts(&text, "exit code null");
	if (r->signal[0])
		buf_printf(&text, " (signal %s)", r->signal);
	line = first_line(logs, name, RUNLOG_STDERR);
	if (!line)
		line = first_line(logs, name, RUNLOG_STDOUT);
	if (line)
		buf_printf(&text, ": %s", line);
	return buf_steal(&text);
}

/* The run's id with another version digit: derived, so that cancelling needs no bookkeeping. */
void provision_exec_id(const char *run_id, char out[ID_SIZE])
{
	id_copy(out, run_id);
	out[14] = out[14] == '5' ? '6' : '5';
}

void provision_run_id(const char *exec_id, char out[ID_SIZE])
{
	id_copy(out, exec_id);
	out[14] = out[14] == '6' ? '5' : '7';
}

int provision_run(struct orchestration *o, const struct provision *p, char **detail,
		  struct error *err)
{
	char *const argv[] = { (char *)"bash", (char *)"-lc", (char *)p->command, NULL };
	char *const env[] = { (char *)"SHELL=/bin/bash", NULL };
	_cleanup_free_ char *log_name = xasprintf("%s.provision", p->run_id);
	struct runlog *log = NULL;
	struct exec *exec = NULL;
	struct exec_result result = { 0 };
	char exec_id[ID_SIZE];
	struct exec_spec spec = { .exec_id = exec_id,
				  .place_id = p->place->id,
				  .generation = p->generation,
				  .argv = argv,
				  .env = env,
				  .cwd = p->cwd,
				  .timeout_ms = p->timeout_ms };
	int outcome;

	*detail = NULL;
	provision_exec_id(p->run_id, exec_id);
	if (runlog_open(o->logs, log_name, &log, err) < 0)
		return -1;
	spec.log = log;
	outcome = maker_start(o->makers, p->place, &spec, &exec, err);
	if (outcome == 0)
		outcome = exec_wait(exec, &result, err);
	runlog_close(log);
	if (outcome == 0)
		*detail = describe_failure(o->logs, log_name, &result);
	runlog_remove(o->logs, log_name, NULL);
	return outcome;
}
