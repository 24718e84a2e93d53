"""Generation with language models: a decoder loop that keeps keys and values in place, and text in and out.

from sardonyx.generation import Decoder, GenerationConfig, TextGenerator, generate

model = TextGenerator.from_folder("qwen-onnx")                 an exported folder, with tokenizer.json
for piece in model.stream("Once upon a time", max_new_tokens=64):
    print(piece, end="", flush=True)

decoder = Decoder("decoder.onnx")                              tokens in, tokens out
result = generate(decoder, [[1, 15, 7]], GenerationConfig(num_beams=4), max_new_tokens=32)

model = EncoderDecoder("encoder_model.onnx", "decoder_model_merged.onnx", start=0)
result = generate(model, model.read([[8, 15, 3]]), max_new_tokens=32)

words = SpeechReader.from_folder("whisper-onnx").transcribe(read_sound("speech.wav"))
"""

from __future__ import annotations

from sardonyx.decoding.config import GenerationConfig
from sardonyx.generation.decoder import Decoder
from sardonyx.generation.encoder_decoder import EncoderDecoder
from sardonyx.generation.features import log_mel, read_sound
from sardonyx.generation.folder import ModelFolder, read_folder
from sardonyx.generation.generate import Generation, generate, stream
from sardonyx.generation.speech import SpeechReader
from sardonyx.generation.text import TextGenerator

__all__ = [
    "Decoder",
    "EncoderDecoder",
    "Generation",
    "GenerationConfig",
    "ModelFolder",
    "SpeechReader",
    "TextGenerator",
    "generate",
    "log_mel",
    "read_folder",
    "read_sound",
    "stream",
]
