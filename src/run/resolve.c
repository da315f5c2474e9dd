/*
 * The first step of a run: who asks, and where it will run. Nothing is leased yet, so whatever
 * cannot be is said here.
 */
#include "run/walk.h"

#include "base/text.h"
#include "run/row.h"
#include "run/select.h"

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

int walk_resolve(struct walk *w, struct error *err)
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
	if (execution_target(walk_adapter(w), &w->environment, NULL, &w->target, err) < 0)
		return -1;
	execution_target_clear(&w->target);
	return run_note_environment(w->o->db, w->o->clock, w->run->id, w->environment.id, err);
}
