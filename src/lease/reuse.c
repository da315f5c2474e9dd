/*
 * What a request needs of a place, and whether a free one will do.
 *
 * A place is used again only by the same company, environment, provider, workspace and agent under
 * the same policy (its scope), and only while it was made from the same config by the same program
 * rules (its fingerprint). Everything else gets a new place: what one agent left behind is not
 * another's to find, and a config that changed is a promise that the old place does not keep.
 */
#include "lease/acquisition.h"

#include <string.h>

#include "base/sha256.h"
#include "base/text.h"

/* Raised when places made by older rules must not be used again; a new release alone is no reason.
 */
#define PLACE_RULES_VERSION "1"

static bool policy_reuses(enum lease_policy policy)
{
	return policy == POLICY_REUSE_BY_ENVIRONMENT || policy == POLICY_REUSE_BY_WORKSPACE;
}

/* One for work in an execution workspace says nothing about a lease without one. */
static enum lease_policy policy_of_environment(const struct acquisition *a)
{
	const struct lease_request *r = a->request;
	const char *named = json_str(r->environment->config, "leasePolicy");
	enum lease_policy policy;

	if (named && lease_policy_parse(named, &policy) &&
	    (policy != POLICY_REUSE_BY_WORKSPACE || id_is_set(r->workspace_id)))
		return policy;
	return !named && maker_reuses(a->leases->makers, r->environment)
		       ? POLICY_REUSE_BY_ENVIRONMENT
		       : POLICY_EPHEMERAL;
}

static int choose_policy(struct acquisition *a, const struct maker *maker, struct error *err)
{
	const struct lease_request *r = a->request;

	if (r->policy)
		a->policy = *r->policy;
	else
		a->policy = policy_of_environment(a);
	if (a->policy == POLICY_REUSE_BY_WORKSPACE && !id_is_set(r->workspace_id))
		return error_set(err, ERR_VALIDATION, "policy %s needs an execution workspace",
				 lease_policy_name(a->policy));
	if (policy_reuses(a->policy) && !maker->traits.reusable)
		return error_set(
			err, ERR_UNPROCESSABLE,
			"places of driver \"%s\" cannot be reused: policy %s does not apply",
			driver_kind_name(r->environment->driver), lease_policy_name(a->policy));
	return 0;
}

/* Whether a place outlives its lease is the lease's policy, whatever the environment usually asks.
 */
static struct stored_config config_for(const struct acquisition *a, const struct maker *maker)
{
	const json_t *config = a->request->environment->config;
	json_t *copy = config ? json_deep_copy(config) : json_object();

	if (maker->traits.reusable)
		json_put_bool(copy, "reuseLease", policy_reuses(a->policy));
	return (struct stored_config){ copy };
}

static const char *or_dash(const char *id)
{
	return id_is_set(id) ? id : "-";
}

static char *scope_of(const struct acquisition *a)
{
	const struct lease_request *r = a->request;

	if (!policy_reuses(a->policy))
		return xstrdup("");
	return xasprintf("%s company=%s environment=%s provider=%s workspace=%s agent=%s",
			 lease_policy_name(a->policy), r->company_id, r->environment->id,
			 a->provider, or_dash(r->workspace_id), or_dash(r->agent_id));
}

/* Only for a place that is used again: others are compared with nothing. */
static void take_fingerprint(struct acquisition *a)
{
	_cleanup_free_ char *config = json_canonical(a->config.json), *whole = NULL;
	_cleanup_free_ char *text =
		xasprintf("rules=%s driver=%s provider=%s config=%s", PLACE_RULES_VERSION,
			  driver_kind_name(a->request->environment->driver), a->provider, config);

	/* Who works on another tree, or on the same in another way, needs another place. */
	if (a->request->workspace)
		whole = xasprintf("%s workspace=%s:%s", text,
				  workspace_how_name(a->request->workspace->how),
				  a->request->workspace->path);
	sha256_hex(whole ? whole : text, strlen(whole ? whole : text), a->fingerprint);
}

static int check_period(const char *name, int64_t ms, struct error *err)
{
	if (ms < 0 || ms > MAX_PERIOD_MS)
		return error_set(err, ERR_VALIDATION, "%s must be between 0 and a year", name);
	return 0;
}

static int check_request(const struct lease_request *r, struct error *err)
{
	if (!r->environment || !id_is_set(r->company_id) || !r->actor)
		return error_set(err, ERR_INTERNAL,
				 "a lease needs a company, an environment and an actor");
	if (r->lease_id && !id_is_valid(r->lease_id))
		return error_set(err, ERR_VALIDATION, "the lease id must be a UUID");
	if (check_period("ttl", r->ttl_ms, err) < 0 || check_period("idle", r->idle_ms, err) < 0 ||
	    check_period("retain", r->retain_ms, err) < 0)
		return -1;
	return 0;
}

int acquisition_prepare(struct acquisition *a, struct error *err)
{
	const struct lease_request *r = a->request;
	const struct maker *maker;

	if (check_request(r, err) < 0)
		return -1;
	maker = makers_require(a->leases->makers, r->environment->driver,
			       json_str(r->environment->config, "provider"), err);
	if (!maker || choose_policy(a, maker, err) < 0)
		return -1;
	a->fleeting = a->policy == POLICY_EPHEMERAL && maker->traits.fleeting;
	if (r->workspace && maker_check_mount(a->leases->makers, r->environment, err) < 0)
		return -1;
	if (r->lease_id)
		id_copy(a->lease_id, r->lease_id);
	else
		id_new(a->lease_id);
	a->config = config_for(a, maker);
	a->place_request = (struct place_request){
		.environment = r->environment,
		.config = a->config,
		.lease_id = a->lease_id,
		.run_id = r->run_id,
		.issue_id = r->issue_id,
		.agent_id = r->agent_id,
		.workspace_id = r->workspace_id,
		.workspace_mode = r->workspace_mode,
		.workspace = r->workspace,
		.bounds = &a->bounds,
		.deadline_ms = maker_deadline_ms(a->config),
	};
	if (maker_name_place(a->leases->makers, &a->place_request, &a->provider, &a->provider_ref,
			     err) < 0)
		return -1;
	a->scope = scope_of(a);
	if (a->scope[0])
		take_fingerprint(a);
	return 0;
}

void acquisition_clear(struct acquisition *a)
{
	json_decref(a->config.json);
	free(a->provider);
	free(a->provider_ref);
	free(a->scope);
	place_clear(&a->place);
	place_grant_clear(&a->grant);
	place_bounds_clear(&a->bounds);
	lease_clear(&a->lease);
	*a = (struct acquisition){ 0 };
}

/* The policy is the first word of a scope. */
static bool same_policy(const char *scope, const char *other)
{
	size_t n = strcspn(scope, " ");

	return n == strcspn(other, " ") && strncmp(scope, other, n) == 0;
}

const char *reuse_mismatch(const struct acquisition *a, const struct place *place)
{
	/* Nothing would keep its last holder out. */
	if (place->fencing == FENCING_NONE)
		return "place_not_fenced";
	if (!a->scope[0] || !same_policy(a->scope, place->scope))
		return "lease_policy_mismatch";
	if (!streq(a->scope, place->scope))
		return "lease_scope_mismatch";
	if (!streq(a->fingerprint, place->fingerprint))
		return "lease_fingerprint_mismatch";
	return NULL;
}
