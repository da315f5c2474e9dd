/*
 * The first step of a run: who asks, and where it will run. Nothing is leased yet, so whatever
 * cannot be is said here.
 */
#include "run/job.h"

#include "base/log.h"
#include "base/text.h"
#include "record/select.h"
#include "record/trust.h"
#include "run/default.h"
#include "run/row.h"

static int load_context(struct run_job *w, struct error *err)
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
	}
	if (id_is_set(run->issue_id)) {
		if (issue_get(db, run->issue_id, &w->issue, err) < 0)
			return -1;
		if (!id_is_set(workspace_id) &&
		    str_equal(w->issue.execution_workspace_preference, "reuse_existing"))
			workspace_id = w->issue.execution_workspace_id;
	}
	if (!id_is_set(run->project_id)) {
		w->project_by_issue = id_is_set(run->issue_id);
		id_copy(run->project_id, w->issue.project_id);
	}
	if (id_is_set(run->project_id) && project_get(db, run->project_id, &w->project, err) < 0)
		return -1;
	if (id_is_set(workspace_id)) {
		if (workspace_record_get(db, workspace_id, &w->workspace, err) < 0)
			return -1;
		w->reuses_workspace = workspace_is_reusable(&w->workspace);
	}
	return 0;
}

static int check_environment(struct run_job *w, const char *id, struct error *err)
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

/* ---- what may lead to this host ---- */

/* The weakest of those who decided that the run is on this host, and what they wrote. */
struct decision {
	enum trust trust;
	const char *what;
};

static void count(struct decision *d, enum trust writer, const char *what)
{
	if (writer < d->trust)
		*d = (struct decision){ writer, what };
}

/*
 * Each level that was asked, down to the one that chose: one that was passed over would have kept
 * the run elsewhere, so that it chose nothing is a decision too.
 */
static void count_levels(const struct run_job *w, const char *source, struct decision *d)
{
	const struct {
		const char *source;
		const json_t *trust;
		bool there;
		const char *path, *what;
	} levels[] = {
		{ "workspace", w->workspace.trust, w->reuses_workspace, "config.environmentId",
		  "the workspace's config.environmentId" },
		{ "issue", w->issue.trust, id_is_set(w->issue.id),
		  "executionWorkspaceSettings.environmentId",
		  "the issue's executionWorkspaceSettings.environmentId" },
		{ "project", w->project.trust, id_is_set(w->project.id),
		  "executionWorkspacePolicy.environmentId",
		  "the project's executionWorkspacePolicy.environmentId" },
		{ "agent", w->agent.trust, id_is_set(w->agent.id), "defaultEnvironmentId",
		  "the agent's defaultEnvironmentId" },
	};

	if (streq(source, "request"))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
		if (levels[i].there)
			count(d, deciding_trust(levels[i].trust, levels[i].path), levels[i].what);
		if (streq(source, levels[i].source))
			return;
	}
}

/* How the run came to its project and its workspace, if it did not name them itself. */
static void count_links(const struct run_job *w, const char *source, struct decision *d)
{
	const json_t *issue = w->issue.trust;

	if (streq(source, "request") || !id_is_set(w->issue.id))
		return;
	if (w->project_by_issue)
		count(d, deciding_trust(issue, "projectId"), "the issue's projectId");
	if (id_is_set(w->run->workspace_id))
		return;
	count(d, deciding_trust(issue, "executionWorkspaceId"), "the issue's executionWorkspaceId");
	count(d, deciding_trust(issue, "executionWorkspacePreference"),
	      "the issue's executionWorkspacePreference");
}

static void count_workspace(const struct run_job *w, const char *source, struct decision *d)
{
	if (!id_is_set(w->workspace.id))
		return;
	if (!w->reuses_workspace && !streq(source, "request"))
		count(d, deciding_trust(w->workspace.trust, "status"), "the workspace's status");
	if (!w->run->workspace && !w->run->cwd && !str_blank(w->workspace.cwd))
		count(d, deciding_trust(w->workspace.trust, "cwd"), "the workspace's cwd");
}

static int refuse_decision(const struct run_job *w, const struct decision *d, struct error *err)
{
	static const char *const WRITERS[] = {
		[TRUST_AGENT] = "an agent",
		[TRUST_TOKEN] = "a token, or before Berth kept who wrote it",
	};

	if (!d->what)
		return refuse_local(err);
	return error_set(
		err, ERR_FORBIDDEN,
		"the run would be on this host (environment \"%s\"), and %s was written by "
		"%s: name a sandbox, or write that value again as the server's own user",
		w->environment.name, d->what, WRITERS[d->trust]);
}

/* Driver local: everything that leads there was written by local trust, or the run does not begin.
 */
static int check_host(struct run_job *w, const char *source, struct error *err)
{
	const json_t *request = json_object_at(w->run->context, "request");
	struct decision d = { TRUST_LOCAL, NULL };

	if (w->environment.driver != DRIVER_LOCAL)
		return 0;
	if (w->o->makers->host->no_local)
		return refuse_host(err);
	count_levels(w, source, &d);
	count_links(w, source, &d);
	count_workspace(w, source, &d);
	if (json_str(request, "commandTrust"))
		count(&d, trust_read(json_str(request, "commandTrust")),
		      "the agent's adapterConfig");
	count(&d, deciding_trust(w->environment.trust, "driver"), "the environment's driver");
	count(&d, deciding_trust(w->environment.trust, "config"), "the environment's config");
	if (run_starter(w->run) < TRUST_LOCAL)
		return refuse_local(err);
	return d.trust < TRUST_LOCAL ? refuse_decision(w, &d, err) : 0;
}

/* Variables of a weaker writer are not applied on this host; the run says which were left out. */
static void leave_out_variables(struct run_job *w)
{
	enum trust writer = deciding_trust(w->project.trust, "env");
	json_t *left_out, *names;
	const char *name;
	json_t *value;

	if (w->environment.driver != DRIVER_LOCAL || writer == TRUST_LOCAL ||
	    json_object_size(w->project.env) == 0)
		return;
	w->no_project_env = true;
	names = json_array();
	json_object_foreach (w->project.env, name, value)
		json_array_append_new(names, json_string(name));
	left_out = json_object();
	json_put_str(left_out, "from", "project");
	json_put_str(left_out, "writtenBy", trust_word(writer));
	json_put_new(left_out, "names", names);
	json_put_new(w->run->context, "variablesLeftOut", left_out);
	log_warn(
		"run %s is on this host: the %zu variables of its project were written by %s trust "
		"and are left out",
		w->run->id, json_object_size(w->project.env), trust_word(writer));
}

int job_resolve(struct run_job *w, struct error *err)
{
	_cleanup_environment_ struct environment fallback = { 0 };
	_cleanup_error_ struct error missing = { 0 };
	_cleanup_json_ json_t *workspace_settings = NULL;
	struct selection s = { 0 };
	const char *id, *source;

	if (load_context(w, err) < 0)
		return -1;
	/* A company without one can still be told where to run. */
	default_environment(w->o->db, w->o->clock, &w->o->runs->default_place, w->run->company_id,
			    &fallback, &missing);
	workspace_settings = w->reuses_workspace ? workspace_config(w->workspace.metadata) : NULL;
	s.requested = json_object_get(json_object_at(w->run->context, "request"), "environmentId");
	s.workspace_config = workspace_settings;
	s.issue_settings = w->issue.execution_workspace_settings;
	s.project_policy = w->project.execution_workspace_policy;
	s.agent_default_id = w->agent.default_environment_id;
	s.default_id = fallback.id;
	id = select_environment(&s, &source);
	w->by_default = id == fallback.id;
	if (w->by_default && missing.code != ERR_NONE) {
		error_move(err, &missing);
		return -1;
	}
	if (check_environment(w, id, err) < 0)
		return -1;
	json_put_str(w->run->context, "environmentSource", source);
	w->actor.no_local = run_starter(w->run) < TRUST_LOCAL;
	/* With --allow-local-for-tokens people have local trust; the other settings are asked
	 * apart. */
	w->actor.by_token = w->actor.no_local ||
			    json_bool(json_object_at(w->run->context, "request"), "byToken", false);
	if (check_host(w, source, err) < 0)
		return -1;
	leave_out_variables(w);
	/* Refused before anything is leased: what cannot run there must not hold a place there. */
	if (execution_target(job_adapter(w), &w->environment, NULL, &w->target, err) < 0)
		return -1;
	execution_target_clear(&w->target);
	return 0;
}
