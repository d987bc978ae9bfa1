# ruff: noqa: E501
"""Rows of ours in the shapes of the original's MATH.csv and mbpp_filtered.csv."""

MATH = [
    ["question", "correct_answer", "answer", "level"],
    ["What is $7 + 5$?", "Adding gives $7+5=\\boxed{12}$.", "12", "Level 1"],
    ["What is $9 - 14$?", "$9-14=\\boxed{-5}$.", "-5", "Level 1"],
    ["Simplify $\\frac{6}{8}$.", "Divide both by $2$: $\\boxed{\\frac{3}{4}}$.", "\\frac{3}{4}", "Level 2"],
    ["Solve $2x = 18$ for $x$.", "Halving, $x=\\boxed{9}$.", "9", "Level 1"],
    ["What is the square of $11$?", "$11\\cdot 11=\\boxed{121}$.", "121", "Level 1"],
    [
        "Find $\\sqrt{50}$ in simplest radical form.",
        "$\\sqrt{25\\cdot 2}=\\boxed{5\\sqrt{2}}$.",
        "5\\sqrt{2}",
        "Level 3",
    ],
    [
        "Give the ordered pair $(x,y)$ with $x+y=3$ and $x-y=1$.",
        "Adding, $2x=4$, so $x=2$ and $y=1$: $\\boxed{(2,1)}$.",
        "(2,1)",
        "Level 3",
    ],
    ["What is $15\\%$ of $40$?", "$0.15\\cdot 40=\\boxed{6}$.", "6", "Level 2"],
    ["Expand $(x+1)^2$.", "$\\boxed{x^2+2x+1}$.", "x^2+2x+1", "Level 2"],
    ["How many degrees are in a right angle?", "A quarter of $360$ is $\\boxed{90}$.", "90", "Level 1"],
    ["What is the sum of the first four odd numbers?", "$1+3+5+7=\\boxed{16}$.", "16", "Level 2"],
    ["Compute $2^6$.", "$\\boxed{64}$.", "64", "Level 1"],
    [
        "What is the greatest common divisor of $12$ and $18$?",
        "The common divisors are $1,2,3,6$: $\\boxed{6}$.",
        "6",
        "Level 2",
    ],
    ["Write $0.125$ as a fraction.", "$\\frac{125}{1000}=\\boxed{\\frac{1}{8}}$.", "\\frac{1}{8}", "Level 2"],
    ["For which $x$ is $3x+1=10$?", "$3x=9$, $x=\\boxed{3}$.", "3", "Level 1"],
    ["What is the perimeter of a square of side $8$?", "$4\\cdot 8=\\boxed{32}$.", "32", "Level 1"],
    ["Find the slope of the line $y=4x-7$.", "It is the coefficient of $x$: $\\boxed{4}$.", "4", "Level 1"],
    ["What is $\\binom{5}{2}$?", "$\\frac{5\\cdot 4}{2}=\\boxed{10}$.", "10", "Level 3"],
    ["Solve $x^2=49$ for the positive $x$.", "$\\boxed{7}$.", "7", "Level 1"],
    ["What is the remainder of $29$ divided by $6$?", "$29=4\\cdot 6+5$, so $\\boxed{5}$.", "5", "Level 2"],
    ["Which interval solves $1<x+1<4$?", "Take $1$ away: $\\boxed{(0,3)}$.", "(0,3)", "Level 4"],
    [
        "What is $\\frac{2}{3}+\\frac{1}{6}$?",
        "$\\frac{4}{6}+\\frac{1}{6}=\\boxed{\\frac{5}{6}}$.",
        "\\frac{5}{6}",
        "Level 2",
    ],
    ["What is the area of a rectangle of sides $3$ and $9$?", "$\\boxed{27}$.", "27", "Level 1"],
    ["How many primes are below $12$?", "$2,3,5,7,11$: $\\boxed{5}$.", "5", "Level 2"],
]

MBPP = [
    ["problem", "reference_solution", "test_list"],
    [
        "Write a function to add one to a number.",
        "def add_one(n):\n    return n + 1",
        "['assert add_one(1) == 2', 'assert add_one(-1) == 0', 'assert add_one(10) == 11']",
    ],
    [
        "Write a function that returns the larger of two numbers.",
        "def larger(a, b):\n    return a if a > b else b",
        "['assert larger(1, 2) == 2', 'assert larger(5, 3) == 5', 'assert larger(-4, -4) == -4']",
    ],
    [
        "Write a function to reverse a list.",
        "def reversed_list(items):\n    return items[::-1]",
        "['assert reversed_list([1, 2, 3]) == [3, 2, 1]', 'assert reversed_list([]) == []', \"assert reversed_list(['a', 'b']) == ['b', 'a']\"]",
    ],
    [
        "Write a function to count the vowels of a word.",
        "def vowels(word):\n    return sum(c in 'aeiou' for c in word.lower())",
        "[\"assert vowels('banana') == 3\", \"assert vowels('') == 0\", \"assert vowels('OWL') == 1\"]",
    ],
    [
        "Write a function to compute the factorial recursively.",
        "def factorial(n):\n    return 1 if n < 2 else n * factorial(n - 1)",
        "['assert factorial(0) == 1', 'assert factorial(5) == 120', 'assert factorial(3) == 6']",
    ],
    [
        "Write a function to find the square root of a number, rounded down.",
        "import math\n\ndef root(n):\n    return math.isqrt(n)",
        "['assert root(16) == 4', 'assert root(17) == 4', 'assert root(0) == 0']",
    ],
    [
        "Write a function to count how often each character occurs.",
        "from collections import Counter\n\ndef frequency(text):\n    return Counter(text)",
        "[\"assert frequency('aab') == {'a': 2, 'b': 1}\", \"assert frequency('') == {}\", \"assert frequency('zz') == {'z': 2}\"]",
    ],
    [
        "Write a function to check whether a number is even.",
        "def is_even(n):\n    return n % 2 == 0",
        "['assert is_even(2) == True', 'assert is_even(3) == False', 'assert is_even(0) == True']",
    ],
    [
        "Write a function to return the sum of the digits of a number.",
        "def digit_sum(n):\n    return sum(int(d) for d in str(abs(n)))",
        "['assert digit_sum(123) == 6', 'assert digit_sum(-45) == 9', 'assert digit_sum(0) == 0']",
    ],
    [
        "Write a function to swap the two elements of a pair.",
        "def swap(pair):\n    a, b = pair\n    return (b, a)",
        "['assert swap((1, 2)) == (2, 1)', \"assert swap(('x', 'y')) == ('y', 'x')\", 'assert swap((0, 0)) == (0, 0)']",
    ],
    [
        "Write a function to keep the words that are longer than n letters.",
        "def longer(words, n):\n    return [w for w in words if len(w) > n]",
        "[\"assert longer(['a', 'abc'], 1) == ['abc']\", 'assert longer([], 3) == []', \"assert longer(['ab', 'cd'], 2) == []\"]",
    ],
    [
        "Write a function to multiply all numbers of a list.",
        "def product(numbers):\n    result = 1\n    for n in numbers:\n        result *= n\n    return result",
        "['assert product([2, 3]) == 6', 'assert product([]) == 1', 'assert product([4, 0]) == 0']",
    ],
    [
        "Write a function to find the last index of an item in a list, or -1.",
        "def last_index(items, item):\n    for i in range(len(items) - 1, -1, -1):\n        if items[i] == item:\n            return i\n    return -1",
        "['assert last_index([1, 2, 1], 1) == 2', 'assert last_index([], 1) == -1', 'assert last_index([3], 4) == -1']",
    ],
    [
        "Write a function to merge two dictionaries; the second wins.",
        "def merged(a, b):\n    return {**a, **b}",
        "[\"assert merged({'a': 1}, {'b': 2}) == {'a': 1, 'b': 2}\", \"assert merged({'a': 1}, {'a': 2}) == {'a': 2}\", 'assert merged({}, {}) == {}']",
    ],
    [
        "Write a function to remove repeated items and keep the order.",
        "def unique(items):\n    return list(dict.fromkeys(items))",
        "['assert unique([1, 1, 2]) == [1, 2]', 'assert unique([]) == []', \"assert unique(['b', 'a', 'b']) == ['b', 'a']\"]",
    ],
    [
        "Write a function to turn degrees Celsius into Fahrenheit.",
        "def fahrenheit(celsius):\n    return celsius * 9 / 5 + 32",
        "['assert fahrenheit(0) == 32', 'assert fahrenheit(100) == 212', 'assert fahrenheit(-40) == -40']",
    ],
    [
        "Write a function to tell whether a word is a palindrome.",
        "def palindrome(word):\n    return word == word[::-1]",
        "[\"assert palindrome('level') == True\", \"assert palindrome('ab') == False\", \"assert palindrome('') == True\"]",
    ],
    [
        "Write a function to return the n-th triangular number.",
        "def triangular(n):\n    return n * (n + 1) // 2",
        "['assert triangular(4) == 10', 'assert triangular(1) == 1', 'assert triangular(0) == 0']",
    ],
]
