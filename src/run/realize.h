/*
 * The workspace realization request of spec 01 E.5, and the provision command that follows it.
 */
#pragma once

#include "record/workspace.h"
#include "run/orchestrator.h"

struct realization_source {
	const char *adapter_type;
	const struct run *run;
	const char *environment_id;
	const struct workspace_record *workspace; /* NULL for none */
	const char *local_path;
};
json_t *realization_request(const struct realization_source *source); /* new reference */

/*
 * Runs `bash -lc COMMAND` in the place. A command that ran and failed is success of this call with
 * *detail set to one line saying how it ended; NULL detail means it succeeded.
 */
/* The id of a run's provision command: its own, so that it is never taken for the run's command. */
void provision_exec_id(const char *run_id, char out[ID_SIZE]);
/* The run that would have such a one. */
void provision_run_id(const char *exec_id, char out[ID_SIZE]);

struct provision {
	const struct place *place;
	int64_t generation;
	const char *run_id;
	const char *cwd, *command;
	int64_t timeout_ms;
};
int provision_run(struct orchestration *o, const struct provision *p, char **detail,
		  struct error *err);
