#include "api/server.h"
#include "cli/cli.h"

static int openapi(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *document = openapi_document();

	(void)cli;
	(void)args;
	print_json(document);
	return 0;
}

VERB(OPENAPI, 670) = {
	.name = "openapi",
	.arguments = "",
	.summary = "the description of this program's API (OpenAPI 3.1)",
	.run = openapi,
};
