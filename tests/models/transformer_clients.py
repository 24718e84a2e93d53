"""Programs that run language models by optimum and sentence-transformers, as their users write them.

The models are small, made from a configuration with random weights, and saved with a tokenizer like downloaded ones; each program
exports its model itself, as the libraries do at `export=True` and `backend="onnx"`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

SENTENCES = ["the quick brown fox", "jumps over the lazy dog", "a dog barks"]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.3}

_WHISPER = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}
_ENDS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}


def tokenizer() -> Any:
    """Words as tokens, with BERT's special ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    names = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=32, **{f"{k}_token": v for k, v in names.items()})


def saved(make: Callable[[int], Any], folder: str) -> Any:
    """Put a model, made by `make` from the vocabulary's size, into a folder with its tokenizer; the tokenizer."""
    import torch

    torch.manual_seed(0)
    words = tokenizer()
    make(len(words)).eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return words


def bert(head: str, **settings: Any) -> Callable[[int], Any]:
    """Makes a small BERT with one of transformers' heads."""
    import transformers

    def make(vocabulary: int) -> Any:
        config = transformers.BertConfig(vocab_size=vocabulary, max_position_embeddings=32, **_SIZES, **settings)
        return getattr(transformers, head)(config)

    return make


def rounded(tensor: Any) -> Any:
    """Numbers of a tensor to three digits."""
    return [rounded(row) for row in tensor] if tensor.ndim else round(float(tensor), 3)


def generated(model: Any, batch: Any, **more: Any) -> list[Any]:
    """What a model says of the next token, and texts continued by the likeliest words and by beams."""
    import torch

    with torch.no_grad():
        answers = [rounded(model(**batch, **more).logits[:, -1])]
    for beams in (1, 3):
        found = model.generate(**batch, max_new_tokens=8, min_new_tokens=8, num_beams=beams, do_sample=False)
        answers.append(found.tolist())
    return answers


def optimum_feature_extraction() -> Any:
    """Vectors of tokens, with and without the binding of inputs and outputs, and by way of a saved copy."""
    from optimum.onnxruntime import ORTModelForFeatureExtraction

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as copy:
        words = saved(bert("BertModel"), folder)
        model = ORTModelForFeatureExtraction.from_pretrained(folder, export=True)
        model.save_pretrained(copy)
        answers = []
        for binding in (False, True):
            again = ORTModelForFeatureExtraction.from_pretrained(copy, use_io_binding=binding)
            for kind in ("pt",) if binding else ("pt", "np"):
                found = again(**words(SENTENCES, padding=True, return_tensors=kind))
                answers.append(rounded(found.last_hidden_state))
        return [*answers, str(model.dtype), str(model.device), model.providers]


def optimum_sequence_classification() -> Any:
    """A class for each sentence, by transformers' pipeline."""
    from optimum.onnxruntime import ORTModelForSequenceClassification
    from transformers import pipeline

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertForSequenceClassification", num_labels=3), folder)
        model = ORTModelForSequenceClassification.from_pretrained(folder, export=True)
        classify = pipeline("text-classification", model=model, tokenizer=words, top_k=None)
        return [[[item["label"], round(item["score"], 3)] for item in each] for each in classify(SENTENCES)]


def optimum_token_classification() -> Any:
    """A class for each word."""
    from optimum.onnxruntime import ORTModelForTokenClassification
    from transformers import pipeline

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertForTokenClassification", num_labels=4), folder)
        model = ORTModelForTokenClassification.from_pretrained(folder, export=True)
        classify = pipeline("token-classification", model=model, tokenizer=words)
        found = classify(SENTENCES)
        return [[[item["entity"], item["word"], round(float(item["score"]), 3)] for item in each] for each in found]


def optimum_fill_mask() -> Any:
    """The likeliest words in a gap."""
    from optimum.onnxruntime import ORTModelForMaskedLM
    from transformers import pipeline

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertForMaskedLM"), folder)
        model = ORTModelForMaskedLM.from_pretrained(folder, export=True)
        fill = pipeline("fill-mask", model=model, tokenizer=words)
        return [[item["token_str"], round(item["score"], 3)] for item in fill("the quick [MASK] fox")]


def optimum_question_answering() -> Any:
    """Where in a text the answer stands."""
    import torch
    from optimum.onnxruntime import ORTModelForQuestionAnswering

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertForQuestionAnswering"), folder)
        model = ORTModelForQuestionAnswering.from_pretrained(folder, export=True)
        with torch.no_grad():
            found = model(**words("a dog", "the quick brown fox jumps over the lazy dog", return_tensors="pt"))
        return [rounded(found.start_logits), rounded(found.end_logits)]


def optimum_gpt2_generation() -> Any:
    """Texts continued by the likeliest words and by beams, with and without a cache of keys and values, and with binding."""
    from optimum.onnxruntime import ORTModelForCausalLM
    from transformers import GPT2Config, GPT2LMHeadModel

    def make(vocabulary: int) -> Any:
        config = GPT2Config(vocab_size=vocabulary, n_positions=32, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3, **_ENDS)
        return GPT2LMHeadModel(config)

    with tempfile.TemporaryDirectory() as folder:
        words = saved(make, folder)
        words.padding_side = "left"
        batch = words(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=False)
        answers = []
        for settings in ({}, {"use_io_binding": True}, {"use_cache": False, "use_io_binding": False}):
            model = ORTModelForCausalLM.from_pretrained(folder, export=True, **settings)
            answers += generated(model, batch)
        return answers


def optimum_t5_generation() -> Any:
    """Texts rewritten by an encoder and a decoder, with and without a cache of keys and values, and with binding."""
    from optimum.onnxruntime import ORTModelForSeq2SeqLM
    from transformers import T5Config, T5ForConditionalGeneration

    def make(vocabulary: int) -> Any:
        sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        config = T5Config(vocab_size=vocabulary, decoder_start_token_id=2, **_ENDS, **sizes)
        return T5ForConditionalGeneration(config)

    with tempfile.TemporaryDirectory() as folder:
        words = saved(make, folder)
        batch = words(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=False)
        answers = []
        for settings in ({}, {"use_io_binding": True}, {"use_cache": False, "use_io_binding": False}):
            model = ORTModelForSeq2SeqLM.from_pretrained(folder, export=True, **settings)
            answers += generated(model, batch, decoder_input_ids=batch["input_ids"])
        return answers


def optimum_llama_generation() -> Any:
    """Texts continued by a decoder whose heads share keys and values, with and without a cache of them."""
    from optimum.onnxruntime import ORTModelForCausalLM
    from transformers import LlamaConfig, LlamaForCausalLM

    def make(vocabulary: int) -> Any:
        config = LlamaConfig(vocab_size=vocabulary, num_key_value_heads=2, max_position_embeddings=64, **_SIZES, **_ENDS)
        return LlamaForCausalLM(config)

    with tempfile.TemporaryDirectory() as folder:
        words = saved(make, folder)
        words.padding_side = "left"
        batch = words(SENTENCES, padding=True, return_tensors="pt", return_token_type_ids=False)
        answers = []
        for settings in ({}, {"use_cache": False, "use_io_binding": False}):
            model = ORTModelForCausalLM.from_pretrained(folder, export=True, **settings)
            answers += generated(model, batch)
        return answers


def optimum_dynamic_quantization() -> Any:
    """A model whose products are in integers, quantized by ORTQuantizer for several machines, and its nodes."""
    import onnx
    import torch
    from optimum.onnxruntime import ORTModelForSequenceClassification, ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertForSequenceClassification", num_labels=3), folder)
        model = ORTModelForSequenceClassification.from_pretrained(folder, export=True)
        batch = words(SENTENCES, padding=True, return_tensors="pt")
        answers: list[Any] = []
        for machine in ("avx2", "avx512_vnni", "arm64"):
            config = getattr(AutoQuantizationConfig, machine)(is_static=False, per_channel=machine != "avx2")
            with tempfile.TemporaryDirectory() as target, torch.no_grad():
                ORTQuantizer.from_pretrained(model).quantize(save_dir=target, quantization_config=config)
                nodes = [node.op_type for node in onnx.load(f"{target}/model_quantized.onnx").graph.node]
                again = ORTModelForSequenceClassification.from_pretrained(target, file_name="model_quantized.onnx")
                answers.append([sorted(nodes), [round(float(score), 1) for score in again(**batch).logits.reshape(-1)]])
        return answers


def optimum_image_classification() -> Any:
    """Scores of pictures by a transformer and by a convolution net."""
    import torch
    from optimum.onnxruntime import ORTModelForImageClassification
    from transformers import ResNetConfig, ResNetForImageClassification, ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    residual = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    networks = (
        ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=5, **_SIZES)),
        ResNetForImageClassification(ResNetConfig(num_labels=5, **residual)),
    )
    answers = []
    for network in networks:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            network.eval().save_pretrained(folder)
            model = ORTModelForImageClassification.from_pretrained(folder, export=True)
            answers.append(rounded(model(pixel_values=torch.randn(3, 3, 32, 32)).logits))
    return answers


def optimum_speech_recognition() -> Any:
    """Tokens of a spectrogram by Whisper's encoder and decoder, with and without a cache of keys and values."""
    import torch
    from optimum.onnxruntime import ORTModelForSpeechSeq2Seq
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    layers = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in _WHISPER.items()}

    def make(vocabulary: int) -> Any:
        ends = {**_ENDS, "decoder_start_token_id": 2, "suppress_tokens": [], "begin_suppress_tokens": []}
        config = WhisperConfig(vocab_size=vocabulary, num_mel_bins=16, d_model=32, **layers, **ends)
        return WhisperForConditionalGeneration(config)

    with tempfile.TemporaryDirectory() as folder:
        saved(make, folder)
        features = torch.randn(1, 16, 3000)
        answers = []
        for settings in ({}, {"use_cache": False, "use_io_binding": False}):
            model = ORTModelForSpeechSeq2Seq.from_pretrained(folder, export=True, **settings)
            found = model.generate(features, max_new_tokens=8, min_new_tokens=8, do_sample=False)
            answers.append(found.tolist())
        return answers


def sentence_transformers() -> Any:
    """Vectors of sentences and how near they are to each other."""
    from sentence_transformers import SentenceTransformer, models

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as bare:
        saved(bert("BertModel"), bare)
        words = models.Transformer(bare)
        SentenceTransformer(modules=[words, models.Pooling(words.get_word_embedding_dimension())], device="cpu").save(folder)
        model = SentenceTransformer(folder, backend="onnx", device="cpu")
        found = model.encode(SENTENCES)
        return [rounded(found), rounded(model.similarity(found, found))]


def sentence_transformers_cross_encoder() -> Any:
    """How well pairs of sentences fit."""
    from sentence_transformers import CrossEncoder

    with tempfile.TemporaryDirectory() as folder:
        saved(bert("BertForSequenceClassification", num_labels=1), folder)
        model = CrossEncoder(folder, backend="onnx", device="cpu")
        return rounded(model.predict([(first, second) for first in SENTENCES for second in SENTENCES]))


def optimum_optimizer() -> Any:
    """Layers fused by ORTOptimizer at two levels, in float32 and float16, and the model that it wrote."""
    import torch
    from optimum.onnxruntime import ORTModelForFeatureExtraction, ORTOptimizer
    from optimum.onnxruntime.configuration import AutoOptimizationConfig

    with tempfile.TemporaryDirectory() as folder:
        words = saved(bert("BertModel"), folder)
        model = ORTModelForFeatureExtraction.from_pretrained(folder, export=True)
        batch = words(SENTENCES, padding=True, return_tensors="pt")
        answers = []
        for config in (AutoOptimizationConfig.O1(), AutoOptimizationConfig.O2()):
            with tempfile.TemporaryDirectory() as target, torch.no_grad():
                ORTOptimizer.from_pretrained(model).optimize(save_dir=target, optimization_config=config)
                again = ORTModelForFeatureExtraction.from_pretrained(target, file_name="model_optimized.onnx")
                answers.append(rounded(again(**batch).last_hidden_state))
        return answers


CLIENTS = (
    optimum_optimizer,
    optimum_dynamic_quantization,
    optimum_image_classification,
    optimum_llama_generation,
    optimum_speech_recognition,
    optimum_feature_extraction,
    optimum_sequence_classification,
    optimum_token_classification,
    optimum_fill_mask,
    optimum_question_answering,
    optimum_gpt2_generation,
    optimum_t5_generation,
    sentence_transformers,
    sentence_transformers_cross_encoder,
)
PACKAGES = {client.__name__: "optimum.onnxruntime" for client in CLIENTS}
