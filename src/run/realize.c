#include "run/realize.h"

#include <string.h>

#include "base/text.h"

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
	outcome = driver_start(o->drivers, p->place, &spec, &exec, err);
	if (outcome == 0)
		outcome = exec_wait(exec, &result, err);
	runlog_close(log);
	if (outcome == 0)
		*detail = describe_failure(o->logs, log_name, &result);
	runlog_remove(o->logs, log_name, NULL);
	return outcome;
}
