#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/json.h"
#include "record/select.h"

static const char *chosen(const char *workspace, const char *issue, const char *project,
			  const char *agent)
{
	static char id[64];
	const char *source;
	json_t *w = workspace ? json_loads(workspace, 0, NULL) : NULL;
	json_t *i = issue ? json_loads(issue, 0, NULL) : NULL;
	json_t *p = project ? json_loads(project, 0, NULL) : NULL;
	struct selection s = { .workspace_config = w,
			       .issue_settings = i,
			       .project_policy = p,
			       .agent_default_id = agent,
			       .default_id = "default" };

	snprintf(id, sizeof(id), "%s", select_environment(&s, &source));
	json_decref(w);
	json_decref(i);
	json_decref(p);
	return id;
}

static void WC_1_a_reused_workspace_beats_the_issue(void **state)
{
	(void)state;
	assert_string_equal(chosen("{\"environmentId\":\"w\"}", "{\"environmentId\":\"i\"}",
				   "{\"environmentId\":\"p\"}", "a"),
			    "w");
}

static void WC_2_the_issue_beats_the_project(void **state)
{
	(void)state;
	assert_string_equal(
		chosen(NULL, "{\"environmentId\":\"i\"}", "{\"environmentId\":\"p\"}", "a"), "i");
}

static void WC_3_the_project_beats_the_agent(void **state)
{
	(void)state;
	assert_string_equal(chosen(NULL, NULL, "{\"environmentId\":\"p\"}", "a"), "p");
}

static void WC_4_the_agent_beats_the_company_default(void **state)
{
	(void)state;
	assert_string_equal(chosen(NULL, NULL, NULL, "a"), "a");
}

static void WC_5_a_policy_of_null_means_the_company_default_even_with_an_agent_default(void **state)
{
	(void)state;
	assert_string_equal(chosen(NULL, NULL, "{\"environmentId\":null}", "a"), "default");
}

static void WC_6_nothing_set_gives_the_company_default(void **state)
{
	(void)state;
	assert_string_equal(chosen(NULL, NULL, NULL, ""), "default");
	assert_string_equal(chosen("{}", "{}", "{}", NULL), "default");
}

static void I11_a_workspace_config_without_the_key_does_not_force_the_default(void **state)
{
	(void)state;
	assert_string_equal(
		chosen("{\"provisionCommand\":\"make\"}", "{\"environmentId\":\"i\"}", NULL, "a"),
		"i");
	assert_string_equal(chosen("{\"provisionCommand\":\"make\",\"environmentId\":null}",
				   "{\"environmentId\":\"i\"}", NULL, "a"),
			    "default");
}

static void the_request_beats_everything_and_null_asks_for_the_default(void **state)
{
	json_t *issue = json_loads("{\"environmentId\":\"i\"}", 0, NULL), *asked = json_string("r");
	struct selection s = { .requested = asked,
			       .issue_settings = issue,
			       .default_id = "default" };
	const char *source;

	(void)state;
	assert_string_equal(select_environment(&s, &source), "r");
	assert_string_equal(source, "request");
	s.requested = json_null();
	assert_string_equal(select_environment(&s, &source), "default");
	json_decref(issue);
	json_decref(asked);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(WC_1_a_reused_workspace_beats_the_issue),
		cmocka_unit_test(WC_2_the_issue_beats_the_project),
		cmocka_unit_test(WC_3_the_project_beats_the_agent),
		cmocka_unit_test(WC_4_the_agent_beats_the_company_default),
		cmocka_unit_test(
			WC_5_a_policy_of_null_means_the_company_default_even_with_an_agent_default),
		cmocka_unit_test(WC_6_nothing_set_gives_the_company_default),
		cmocka_unit_test(I11_a_workspace_config_without_the_key_does_not_force_the_default),
		cmocka_unit_test(the_request_beats_everything_and_null_asks_for_the_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
