#include "api/openapi.h"
#include "cli/cli.h"

static int openapi(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *document = openapi_document();
	_cleanup_free_ char *page = NULL;

	(void)cli;
	if (!args_has(args, "markdown")) {
		print_json(document);
		return 0;
	}
	page = openapi_page(document);
	fputs(page, stdout);
	return 0;
}

static const struct flag FLAGS[] = {
	{ "markdown", 0, NULL, "the page docs/api.md instead", false },
	{ 0 },
};

VERB(OPENAPI, 670) = {
	.name = "openapi",
	.arguments = "",
	.summary = "the description of this program's API (OpenAPI 3.1)",
	.flags = FLAGS,
	.run = openapi,
};
