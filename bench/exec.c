/*
 * In a place of this host: what the server and the relay add.
 */
#include "exec_held.h"

int main(int argc, char **argv)
{
	exec_held(argc, argv, "exec", client_acquire_local);
	return 0;
}
