#include <stretto.h>

#include <iostream>

int main() { std::cout << "consumer: found, compiled, linked\n"; }
