#include "../record/record_fixture.h"

#include "base/text.h"
#include "record/member.h"
#include "auth/token.h"
#include "auth/user.h"

SQL(TOKEN_TEXTS, "SELECT COUNT(*) FROM tokens WHERE hash = $1 OR name = $1 OR prefix = $1");
SQL(TOKEN_LAST_USED, "SELECT last_used_at FROM tokens WHERE id = $1");
SQL(AGENT_TERMINATE, "UPDATE agents SET status = 'terminated' WHERE id = $1");

static const struct actor ADMIN = {
	.type = "user", .id = "local", .kind = ACTOR_LOCAL, .is_admin = true
};

static void make_user(struct records *r, const char *name, struct user *out)
{
	assert_done(r, user_create(r->db, r->clock, name, false, out, &r->err));
}

static void make_agent(struct records *r, struct agent *out)
{
	_cleanup_json_ json_t *body = json_of("{'name':'bot'}");

	assert_done(r, agent_create(WRITER(r->db, r->clock, &ADMIN), r->company.id, body, out,
				    &r->err));
}

static struct actor as_user(const struct user *user)
{
	struct actor actor = { .type = "user", .kind = ACTOR_USER };

	snprintf(actor.id, sizeof(actor.id), "%s", user->id);
	return actor;
}

static int set_role(struct records *r, const struct actor *actor, const char *user_id,
		    enum member_role role)
{
	const struct principal principal = { PRINCIPAL_USER, user_id };
	const struct membership_change change = { .role = &role };
	_cleanup_membership_ struct membership now = { 0 };

	return membership_put(r->db, r->clock, actor, r->company.id, &principal, &change, &now,
			      &r->err);
}

static void make_member(struct records *r, const char *name, enum member_role role,
			struct user *out)
{
	make_user(r, name, out);
	assert_done(r, set_role(r, &ADMIN, out->id, role));
}

/* ---- tokens ---- */

static void a_token_is_shown_once_and_kept_as_a_hash(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_token_ struct token token = { 0 };
	struct token_owner owner;
	char text[TOKEN_TEXT_SIZE];

	make_user(r, "Ada", &user);

	struct token_request wish = { .user_id = user.id, .name = "laptop", .ttl_ms = 60000 };

	assert_done(r, token_create(r->db, r->clock, &ADMIN, &wish, &token, text, &r->err));
	assert_int_equal(strlen(text), strlen("pcp_board_") + 48);
	assert_true(str_starts(text, "pcp_board_"));
	assert_int_equal(strlen(token.prefix), strlen("pcp_board_") + 6);
	assert_true(str_starts(text, token.prefix));
	assert_int_equal(records_number(r, &TOKEN_TEXTS, B_TEXT(text)), 0);
	assert_done(r, token_find(r->db, r->clock, text, &owner, &r->err));
	assert_string_equal(owner.user_id, user.id);
	assert_string_equal(owner.agent_id, "");
	assert_false(owner.is_admin);
	text[strlen(text) - 1] ^= 1;
	assert_refused(r, ERR_UNAUTHENTICATED, token_find(r->db, r->clock, text, &owner, &r->err));
}

static void a_token_ends_by_time_by_revocation_and_with_its_user(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_user_ struct user changed = { 0 };
	_cleanup_token_ struct token token = { 0 };
	_cleanup_token_ struct token other = { 0 };
	struct token_owner owner;
	char first[TOKEN_TEXT_SIZE], second[TOKEN_TEXT_SIZE];
	const bool yes = true, no = false;

	make_user(r, "Ada", &user);

	struct token_request wish = { .user_id = user.id, .name = "short", .ttl_ms = 60000 };

	assert_done(r, token_create(r->db, r->clock, &ADMIN, &wish, &token, first, &r->err));
	wish.ttl_ms = 0;
	assert_done(r, token_create(r->db, r->clock, &ADMIN, &wish, &other, second, &r->err));
	clock_fake_advance(&r->fake, 59999);
	assert_done(r, token_find(r->db, r->clock, first, &owner, &r->err));
	clock_fake_advance(&r->fake, 1);
	assert_refused(r, ERR_UNAUTHENTICATED, token_find(r->db, r->clock, first, &owner, &r->err));

	assert_done(r, user_update(r->db, r->clock, user.id, &yes, NULL, &changed, &r->err));
	assert_refused(r, ERR_UNAUTHENTICATED,
		       token_find(r->db, r->clock, second, &owner, &r->err));
	assert_refused(r, ERR_CONFLICT,
		       token_create(r->db, r->clock, &ADMIN, &wish, NULL, first, &r->err));
	assert_done(r, user_update(r->db, r->clock, user.id, &no, &yes, &changed, &r->err));
	assert_done(r, token_find(r->db, r->clock, second, &owner, &r->err));
	assert_true(owner.is_admin);

	assert_done(r, token_revoke(r->db, r->clock, &ADMIN, other.id, &r->err));
	assert_refused(r, ERR_UNAUTHENTICATED,
		       token_find(r->db, r->clock, second, &owner, &r->err));
	assert_refused(r, ERR_NOT_FOUND, token_revoke(r->db, r->clock, &ADMIN, other.id, &r->err));
}

static void its_use_is_noted_once_a_minute(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_token_ struct token token = { 0 };
	struct token_owner owner;
	char text[TOKEN_TEXT_SIZE];

	make_user(r, "Ada", &user);

	struct token_request wish = { .user_id = user.id, .name = "laptop" };

	assert_done(r, token_create(r->db, r->clock, &ADMIN, &wish, &token, text, &r->err));
	assert_done(r, token_find(r->db, r->clock, text, &owner, &r->err));
	assert_int_equal(records_number(r, &TOKEN_LAST_USED, B_TEXT(token.id)), RECORDS_START_MS);
	clock_fake_advance(&r->fake, 59000);
	assert_done(r, token_find(r->db, r->clock, text, &owner, &r->err));
	assert_int_equal(records_number(r, &TOKEN_LAST_USED, B_TEXT(token.id)), RECORDS_START_MS);
	clock_fake_advance(&r->fake, 1000);
	assert_done(r, token_find(r->db, r->clock, text, &owner, &r->err));
	assert_int_equal(records_number(r, &TOKEN_LAST_USED, B_TEXT(token.id)),
			 RECORDS_START_MS + 60000);
}

static void activity_tells_of_tokens_without_telling_them(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_token_ struct token token = { 0 };
	_cleanup_token_ struct token key = { 0 };
	char text[TOKEN_TEXT_SIZE], key_text[TOKEN_TEXT_SIZE];

	make_member(r, "Ada", ROLE_OPERATOR, &user);
	make_agent(r, &agent);

	struct token_request wish = { .user_id = user.id, .name = "laptop" };
	struct token_request key_wish = { .agent_id = agent.id, .name = "ci" };

	assert_done(r, token_create(r->db, r->clock, &ADMIN, &wish, &token, text, &r->err));
	assert_done(r, token_create(r->db, r->clock, &ADMIN, &key_wish, &key, key_text, &r->err));
	assert_true(str_starts(key_text, "pcp_"));
	assert_false(str_starts(key_text, "pcp_board_"));
	assert_done(r, token_revoke(r->db, r->clock, &ADMIN, key.id, &r->err));

	_cleanup_json_ json_t *items = records_activity(r);
	_cleanup_free_ char *all = json_text(items);

	assert_string_equal(json_str(json_array_get(items, 0), "action"), "agent.key_revoked");
	assert_string_equal(json_str(json_array_get(items, 1), "action"), "agent.key_created");
	assert_string_equal(json_str(json_array_get(items, 2), "action"), "board_api_key.created");
	assert_string_equal(json_str(json_object_get(json_array_get(items, 1), "details"), "keyId"),
			    key.id);
	assert_null(strstr(all, text + strlen("pcp_board_")));
	assert_null(strstr(all, key_text + strlen("pcp_")));
}

static void a_terminated_agent_gets_no_key(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(agent_clear) struct agent agent = { 0 };
	char text[TOKEN_TEXT_SIZE];

	make_agent(r, &agent);
	records_exec(r, &AGENT_TERMINATE, B_TEXT(agent.id));

	struct token_request wish = { .agent_id = agent.id, .name = "ci" };

	assert_refused(r, ERR_CONFLICT,
		       token_create(r->db, r->clock, &ADMIN, &wish, NULL, text, &r->err));
	wish.agent_id = "44444444-4444-4444-8444-444444444444";
	assert_refused(r, ERR_NOT_FOUND,
		       token_create(r->db, r->clock, &ADMIN, &wish, NULL, text, &r->err));
}

/* ---- members ---- */

static void roles_bring_what_the_reference_says_and_environments(void **state)
{
	(void)state;

	_cleanup_json_ json_t *owner = permissions_json(role_permissions(ROLE_OWNER));
	_cleanup_json_ json_t *admin = permissions_json(role_permissions(ROLE_ADMIN));
	_cleanup_json_ json_t *operator= permissions_json(role_permissions(ROLE_OPERATOR));

	assert_json(owner,
		    "['agents:create','environments:manage','users:invite',"
		    "'users:manage_permissions','tasks:assign','joins:approve','leases:use']");
	assert_json(admin, "['agents:create','environments:manage','users:invite','tasks:assign',"
			   "'joins:approve','leases:use']");
	assert_json(operator, "['tasks:assign','leases:use']");
	assert_int_equal(role_permissions(ROLE_VIEWER), 0);
	assert_int_equal(role_permissions(ROLE_MEMBER), 0);
}

static void grants_add_to_the_role_while_the_member_is_active(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_membership_ struct membership now = { 0 };
	const unsigned granted = PERMISSION_BIT(PERMISSION_ENVIRONMENTS_MANAGE);
	const enum member_status suspended = MEMBER_SUSPENDED;
	struct membership_change change = { .granted = &granted };

	make_member(r, "Ada", ROLE_OPERATOR, &user);

	const struct principal ada = { PRINCIPAL_USER, user.id };

	assert_done(r, membership_put(r->db, r->clock, &ADMIN, r->company.id, &ada, &change, &now,
				      &r->err));
	assert_int_equal(now.role, ROLE_OPERATOR);
	assert_int_equal(now.permissions, granted | role_permissions(ROLE_OPERATOR));
	change = (struct membership_change){ .status = &suspended };
	assert_done(r, membership_put(r->db, r->clock, &ADMIN, r->company.id, &ada, &change, &now,
				      &r->err));
	assert_int_equal(now.granted, granted);
	assert_int_equal(now.permissions, 0);

	_cleanup_json_ json_t *list = membership_list(r->db, r->company.id, &r->err);
	_cleanup_json_ json_t *companies = company_list_of_user(r->db, user.id, &r->err);

	assert_int_equal(json_array_size(list), 1);
	assert_string_equal(json_str(json_array_get(list, 0), "name"), "Ada");
	assert_int_equal(json_array_size(companies), 0);
}

static void the_last_owner_stays(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user first = { 0 };
	_cleanup_user_ struct user second = { 0 };

	make_member(r, "Ada", ROLE_OWNER, &first);
	make_member(r, "Bob", ROLE_OPERATOR, &second);

	const struct principal ada = { PRINCIPAL_USER, first.id };

	assert_refused(r, ERR_CONFLICT, set_role(r, &ADMIN, first.id, ROLE_ADMIN));
	assert_refused(r, ERR_CONFLICT,
		       membership_delete(r->db, r->clock, &ADMIN, r->company.id, &ada, &r->err));
	assert_done(r, set_role(r, &ADMIN, second.id, ROLE_OWNER));
	assert_done(r, membership_delete(r->db, r->clock, &ADMIN, r->company.id, &ada, &r->err));
	assert_refused(r, ERR_CONFLICT, set_role(r, &ADMIN, second.id, ROLE_VIEWER));
}

/* Managing permissions is not having them. */
static void nobody_makes_themselves_more_than_they_are(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user owner = { 0 };
	_cleanup_user_ struct user manager = { 0 };
	_cleanup_membership_ struct membership now = { 0 };
	const unsigned manages = PERMISSION_BIT(PERMISSION_USERS_MANAGE);
	const unsigned more = manages | PERMISSION_BIT(PERMISSION_ENVIRONMENTS_MANAGE);
	struct membership_change change = { .granted = &manages };

	make_member(r, "Ada", ROLE_OWNER, &owner);
	make_member(r, "Bob", ROLE_OPERATOR, &manager);

	const struct principal bob = { PRINCIPAL_USER, manager.id };
	const struct principal ada = { PRINCIPAL_USER, owner.id };
	struct actor as_bob = as_user(&manager), as_ada = as_user(&owner);

	assert_done(r, membership_put(r->db, r->clock, &as_ada, r->company.id, &bob, &change, &now,
				      &r->err));
	assert_refused(r, ERR_FORBIDDEN, set_role(r, &as_bob, manager.id, ROLE_OWNER));
	assert_refused(r, ERR_FORBIDDEN, set_role(r, &as_bob, manager.id, ROLE_ADMIN));
	assert_refused(r, ERR_FORBIDDEN, set_role(r, &as_bob, owner.id, ROLE_VIEWER));
	assert_refused(r, ERR_FORBIDDEN,
		       membership_delete(r->db, r->clock, &as_bob, r->company.id, &ada, &r->err));
	change.granted = &more;
	assert_refused(r, ERR_FORBIDDEN,
		       membership_put(r->db, r->clock, &as_bob, r->company.id, &bob, &change, &now,
				      &r->err));
	assert_done(r, set_role(r, &as_bob, manager.id, ROLE_VIEWER));
}

static void members_are_people_and_agents_of_the_company(void **state)
{
	struct records *r = records_of(state);
	_cleanup_(company_clear) struct company other = { 0 };
	_cleanup_(agent_clear) struct agent agent = { 0 };
	_cleanup_membership_ struct membership now = { 0 };
	const unsigned granted = PERMISSION_BIT(PERMISSION_ENVIRONMENTS_MANAGE);
	const struct membership_change change = { .granted = &granted };

	assert_done(
		r, company_create(WRITER(r->db, r->clock, &ADMIN), "Other", NULL, &other, &r->err));
	make_agent(r, &agent);

	const struct principal bot = { PRINCIPAL_AGENT, agent.id };
	const struct principal nobody = { PRINCIPAL_USER, "44444444-4444-4444-8444-444444444444" };

	assert_refused(
		r, ERR_NOT_FOUND,
		membership_put(r->db, r->clock, &ADMIN, other.id, &bot, &change, &now, &r->err));
	assert_refused(r, ERR_NOT_FOUND,
		       membership_put(r->db, r->clock, &ADMIN, r->company.id, &nobody, &change,
				      &now, &r->err));
	assert_done(r, membership_put(r->db, r->clock, &ADMIN, r->company.id, &bot, &change, &now,
				      &r->err));
	assert_int_equal(now.permissions, granted);
}

static void who_makes_a_company_with_a_token_owns_it(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };
	_cleanup_(company_clear) struct company made = { 0 };
	_cleanup_membership_ struct membership own = { 0 };

	make_user(r, "Ada", &user);

	struct actor ada = as_user(&user);
	const struct principal principal = { PRINCIPAL_USER, user.id };

	assert_done(r, company_create(WRITER(r->db, r->clock, &ada), "Hers", NULL, &made, &r->err));
	assert_done(r, membership_get(r->db, made.id, &principal, &own, &r->err));
	assert_int_equal(own.role, ROLE_OWNER);

	_cleanup_json_ json_t *list = company_list_of_user(r->db, user.id, &r->err);

	assert_int_equal(json_array_size(list), 1);
}

static void names_of_people_are_unique(void **state)
{
	struct records *r = records_of(state);
	_cleanup_user_ struct user user = { 0 };

	make_user(r, " Ada ", &user);
	assert_string_equal(user.name, "Ada");
	assert_refused(r, ERR_CONFLICT, user_create(r->db, r->clock, "Ada", false, NULL, &r->err));
	assert_refused(r, ERR_VALIDATION,
		       user_create(r->db, r->clock, "A\nda", false, NULL, &r->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(a_token_is_shown_once_and_kept_as_a_hash),
		ON_BOTH(a_token_ends_by_time_by_revocation_and_with_its_user),
		ON_BOTH(its_use_is_noted_once_a_minute),
		ON_BOTH(activity_tells_of_tokens_without_telling_them),
		ON_SQLITE(a_terminated_agent_gets_no_key),
		cmocka_unit_test(roles_bring_what_the_reference_says_and_environments),
		ON_BOTH(grants_add_to_the_role_while_the_member_is_active),
		ON_BOTH(the_last_owner_stays),
		ON_BOTH(nobody_makes_themselves_more_than_they_are),
		ON_SQLITE(members_are_people_and_agents_of_the_company),
		ON_SQLITE(who_makes_a_company_with_a_token_owns_it),
		ON_SQLITE(names_of_people_are_unique),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
