/* The Python interpreter, linked with the runtime of a sanitizer: extensions that are compiled for it need
   one that was there before them. */
#include <Python.h>

int main(int argc, char **argv) { return Py_BytesMain(argc, argv); }
