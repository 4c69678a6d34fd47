from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.dce import erase_dead


def test_a_value_read_on_two_ways_up_is_erased_once():
    graph = parse("""graph g(T: 1..8) {
      %x = weight() {tensor = "x"} : tensor<T x 32 x f32>
      %a = silu(%x) : tensor<T x 32 x f32>
      %b = silu(%a) : tensor<T x 32 x f32>
      %c = mul(%a, %b) : tensor<T x 32 x f32>
    }""")
    erase_dead(graph, *graph.operations[-1:])
    assert graph.operations == []


def test_what_something_else_reads_stays():
    graph = parse("""graph g(T: 1..8) {
      %x = weight() {tensor = "x"} : tensor<T x 32 x f32>
      %a = silu(%x) : tensor<T x 32 x f32>
      %b = silu(%a) : tensor<T x 32 x f32>
      %c = mul(%a, %a) : tensor<T x 32 x f32>
    }""")
    erase_dead(graph, graph.operations[2], graph.operations[1])
    assert [operation.kind for operation in graph.operations] == ["weight", "silu", "mul"]
    verify(graph)
