/*
 * Which company something named by an id belongs to, and the little else that decides who may touch
 * it. One small read each.
 */
#pragma once

#include "record/kinds.h"
#include "record/record.h"

enum subject_kind {
	OF_COMPANY,
	OF_ENVIRONMENT,
	OF_LEASE,
	OF_RUN,
	OF_AGENT,
	OF_PROJECT,
	OF_ISSUE,
	OF_WORKSPACE,
	SUBJECT_KINDS
};
struct subject {
	char company_id[ID_SIZE];
	char agent_id[ID_SIZE];  /* of a run */
	enum run_status status;  /* of a run */
	enum driver_kind driver; /* of the place of a lease or run; DRIVER_KIND_COUNT when none */
};
/*
 * The config and the metadata of the place of a lease or run; NULL each when there is none. New
 * references.
 */
int subject_place(struct db *db, enum subject_kind kind, const char *id, json_t **config,
		  json_t **metadata, struct error *err);
/* "Environment", as in `Environment not found` */
const char *subject_label(enum subject_kind kind);
/* ERR_NOT_FOUND */
int subject_get(struct db *db, enum subject_kind kind, const char *id, struct subject *out,
		struct error *err);
