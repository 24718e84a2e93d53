; conv|8,1,1,8,8,0,1,1,1,0,False,False,True,True,False,0,False|f32:unit|[0]|const:f32()0.0;acc:f32()None;maxr:f32(0,1)None->2
declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load ptr, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load i64, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %p26 = getelementptr i64, ptr %args, i64 13
  %a27 = load i64, ptr %p26, align 8
  %p28 = getelementptr i64, ptr %args, i64 14
  %a29 = load i64, ptr %p28, align 8
  %p30 = getelementptr i64, ptr %args, i64 15
  %a31 = load i64, ptr %p30, align 8
  %p32 = getelementptr i64, ptr %args, i64 16
  %a33 = load i64, ptr %p32, align 8
  %p34 = getelementptr i64, ptr %args, i64 17
  %a35 = load i64, ptr %p34, align 8
  %p36 = getelementptr i64, ptr %args, i64 18
  %a37 = load i64, ptr %p36, align 8
  %p38 = getelementptr i64, ptr %args, i64 19
  %a39 = load i64, ptr %p38, align 8
  %p40 = getelementptr i64, ptr %args, i64 20
  %a41 = load i64, ptr %p40, align 8
  %p42 = getelementptr i64, ptr %args, i64 21
  %a43 = load i64, ptr %p42, align 8
  %p44 = getelementptr i64, ptr %args, i64 22
  %a45 = load i64, ptr %p44, align 8
  %p46 = getelementptr i64, ptr %args, i64 23
  %a47 = load i64, ptr %p46, align 8
  %p48 = getelementptr i64, ptr %args, i64 24
  %a49 = load i64, ptr %p48, align 8
  %p50 = getelementptr i64, ptr %args, i64 25
  %a51 = load i64, ptr %p50, align 8
  %p52 = getelementptr i64, ptr %args, i64 26
  %a53 = load i64, ptr %p52, align 8
  %p54 = getelementptr i64, ptr %args, i64 27
  %a55 = load i64, ptr %p54, align 8
  %p56 = getelementptr i64, ptr %args, i64 28
  %a57 = load i64, ptr %p56, align 8
  %p58 = getelementptr i64, ptr %args, i64 29
  %a59 = load i64, ptr %p58, align 8
  %p60 = getelementptr i64, ptr %args, i64 30
  %a61 = load i64, ptr %p60, align 8
  %p62 = getelementptr i64, ptr %args, i64 31
  %a63 = load i64, ptr %p62, align 8
  %p64 = getelementptr i64, ptr %args, i64 32
  %a65 = load i64, ptr %p64, align 8
  %p66 = getelementptr i64, ptr %args, i64 33
  %a67 = load i64, ptr %p66, align 8
  %p68 = getelementptr i64, ptr %args, i64 34
  %a69 = load ptr, ptr %p68, align 8
  %p70 = getelementptr i64, ptr %args, i64 35
  %a71 = load i64, ptr %p70, align 8
  %p72 = getelementptr i64, ptr %args, i64 36
  %a73 = load i64, ptr %p72, align 8
  %p74 = getelementptr i64, ptr %args, i64 37
  %a75 = load i64, ptr %p74, align 8
  %p76 = getelementptr i64, ptr %args, i64 38
  %a77 = load i64, ptr %p76, align 8
  %p78 = getelementptr i64, ptr %args, i64 39
  %a79 = load i64, ptr %p78, align 8
  %i80 = urem i64 %begin, %a23
  %i81 = udiv i64 %begin, %a23
  %i82 = urem i64 %i81, %a17
  %i83 = udiv i64 %i81, %a17
  %i84 = urem i64 %i83, %a15
  %i85 = udiv i64 %i83, %a15
  %i86 = urem i64 %i85, %a9
  %i87 = udiv i64 %i85, %a9
  %i88 = urem i64 %i87, %a11
  %i89 = udiv i64 %i87, %a11
  %c92 = icmp slt i64 %begin, %end
  br i1 %c92, label %loop90, label %done91
loop90:
  %i93 = phi i64 [ %begin, %entry ], [ %i365, %done147 ]
  %r94 = phi i64 [ %i80, %entry ], [ %i346, %done147 ]
  %r95 = phi i64 [ %i82, %entry ], [ %i350, %done147 ]
  %r96 = phi i64 [ %i84, %entry ], [ %i354, %done147 ]
  %r97 = phi i64 [ %i86, %entry ], [ %i358, %done147 ]
  %r98 = phi i64 [ %i88, %entry ], [ %i362, %done147 ]
  %r99 = phi i64 [ %i89, %entry ], [ %i364, %done147 ]
  %i100 = mul i64 %r99, %a11
  %i101 = add i64 %i100, %r98
  %i102 = mul i64 %r96, %a39
  %i103 = sub i64 %i102, %a33
  %i104 = mul i64 %r95, %a41
  %i105 = sub i64 %i104, %a35
  %i106 = mul i64 %r94, %a21
  %i107 = mul i64 %r99, %a13
  %i108 = add i64 %i107, %r98
  %i109 = sub i64 %a43, 1
  %i110 = sub i64 %i109, %i103
  %i111 = sdiv i64 %i110, %a43
  %c112 = icmp sgt i64 %i111, 0
  %i113 = select i1 %c112, i64 %i111, i64 0
  %i114 = sub i64 %a27, %i103
  %i115 = add i64 %i114, %i109
  %i116 = sdiv i64 %i115, %a43
  %c117 = icmp slt i64 %i116, %a49
  %i118 = select i1 %c117, i64 %i116, i64 %a49
  %c119 = icmp sgt i64 %i118, %i113
  %i120 = select i1 %c119, i64 %i118, i64 %i113
  %i121 = sub i64 %a45, 1
  %i122 = sub i64 %i121, %i105
  %i123 = sdiv i64 %i122, %a45
  %c124 = icmp sgt i64 %i123, 0
  %i125 = select i1 %c124, i64 %i123, i64 0
  %i126 = sub i64 %a29, %i105
  %i127 = add i64 %i126, %i121
  %i128 = sdiv i64 %i127, %a45
  %c129 = icmp slt i64 %i128, %a51
  %i130 = select i1 %c129, i64 %i128, i64 %a51
  %c131 = icmp sgt i64 %i130, %i125
  %i132 = select i1 %c131, i64 %i130, i64 %i125
  %i133 = mul i64 %r97, %a57
  %i134 = mul i64 %r99, %a59
  %i135 = add i64 %i133, %i134
  %p136 = getelementptr float, ptr %a1, i64 %i135
  %i137 = mul i64 %i101, %a67
  %p138 = getelementptr float, ptr %a3, i64 %i137
  %i139 = add i64 %i106, %a21
  %c140 = icmp slt i64 %i139, %a19
  %i141 = select i1 %c140, i64 %i139, i64 %a19
  %i142 = sub i64 %i141, %i106
  %i143 = sdiv i64 %i142, 8
  %i144 = mul i64 %i143, 8
  %i145 = add i64 %i106, %i144
  %c148 = icmp slt i64 %i106, %i145
  br i1 %c148, label %loop146, label %done147
loop146:
  %i149 = phi i64 [ %i106, %loop90 ], [ %i341, %done160 ]
  %i150 = mul i64 %i108, 8
  %p151 = getelementptr float, ptr %a5, i64 %i150
  %b152 = load <8 x float>, ptr %p151, align 4
  %i153 = sub i64 %i149, %a37
  %i154 = mul i64 %a51, %a53
  %i155 = mul i64 %a49, %i154
  %i156 = mul i64 %i155, 8
  %i157 = mul i64 %a53, 8
  %i158 = mul i64 %a51, %i157
  %c161 = icmp slt i64 0, %a55
  br i1 %c161, label %loop159, label %done160
loop159:
  %i162 = phi i64 [ 0, %loop146 ], [ %i298, %done176 ]
  %r163 = phi <8 x float> [ %b152, %loop146 ], [ %r290, %done176 ]
  %r164 = phi <8 x float> [ %b152, %loop146 ], [ %r291, %done176 ]
  %r165 = phi <8 x float> [ %b152, %loop146 ], [ %r292, %done176 ]
  %r166 = phi <8 x float> [ %b152, %loop146 ], [ %r293, %done176 ]
  %r167 = phi <8 x float> [ %b152, %loop146 ], [ %r294, %done176 ]
  %r168 = phi <8 x float> [ %b152, %loop146 ], [ %r295, %done176 ]
  %r169 = phi <8 x float> [ %b152, %loop146 ], [ %r296, %done176 ]
  %r170 = phi <8 x float> [ %b152, %loop146 ], [ %r297, %done176 ]
  %i171 = mul i64 %i162, %a61
  %p172 = getelementptr float, ptr %p136, i64 %i171
  %i173 = mul i64 %i162, %i156
  %p174 = getelementptr float, ptr %p138, i64 %i173
  %c177 = icmp slt i64 %i113, %i120
  br i1 %c177, label %loop175, label %done176
loop175:
  %i178 = phi i64 [ %i113, %loop159 ], [ %i288, %done194 ]
  %r179 = phi <8 x float> [ %r163, %loop159 ], [ %r280, %done194 ]
  %r180 = phi <8 x float> [ %r164, %loop159 ], [ %r281, %done194 ]
  %r181 = phi <8 x float> [ %r165, %loop159 ], [ %r282, %done194 ]
  %r182 = phi <8 x float> [ %r166, %loop159 ], [ %r283, %done194 ]
  %r183 = phi <8 x float> [ %r167, %loop159 ], [ %r284, %done194 ]
  %r184 = phi <8 x float> [ %r168, %loop159 ], [ %r285, %done194 ]
  %r185 = phi <8 x float> [ %r169, %loop159 ], [ %r286, %done194 ]
  %r186 = phi <8 x float> [ %r170, %loop159 ], [ %r287, %done194 ]
  %i187 = mul i64 %i178, %a43
  %i188 = add i64 %i103, %i187
  %i189 = mul i64 %i188, %a63
  %p190 = getelementptr float, ptr %p172, i64 %i189
  %i191 = mul i64 %i178, %i158
  %p192 = getelementptr float, ptr %p174, i64 %i191
  %c195 = icmp slt i64 %i125, %i132
  br i1 %c195, label %loop193, label %done194
loop193:
  %i196 = phi i64 [ %i125, %loop175 ], [ %i278, %done212 ]
  %r197 = phi <8 x float> [ %r179, %loop175 ], [ %r270, %done212 ]
  %r198 = phi <8 x float> [ %r180, %loop175 ], [ %r271, %done212 ]
  %r199 = phi <8 x float> [ %r181, %loop175 ], [ %r272, %done212 ]
  %r200 = phi <8 x float> [ %r182, %loop175 ], [ %r273, %done212 ]
  %r201 = phi <8 x float> [ %r183, %loop175 ], [ %r274, %done212 ]
  %r202 = phi <8 x float> [ %r184, %loop175 ], [ %r275, %done212 ]
  %r203 = phi <8 x float> [ %r185, %loop175 ], [ %r276, %done212 ]
  %r204 = phi <8 x float> [ %r186, %loop175 ], [ %r277, %done212 ]
  %i205 = mul i64 %i196, %a45
  %i206 = add i64 %i105, %i205
  %i207 = mul i64 %i206, %a65
  %p208 = getelementptr float, ptr %p190, i64 %i207
  %i209 = mul i64 %i196, %i157
  %p210 = getelementptr float, ptr %p192, i64 %i209
  %c213 = icmp slt i64 0, %a53
  br i1 %c213, label %loop211, label %done212
loop211:
  %i214 = phi i64 [ 0, %loop193 ], [ %i268, %loop211 ]
  %r215 = phi <8 x float> [ %r197, %loop193 ], [ %v232, %loop211 ]
  %r216 = phi <8 x float> [ %r198, %loop193 ], [ %v237, %loop211 ]
  %r217 = phi <8 x float> [ %r199, %loop193 ], [ %v242, %loop211 ]
  %r218 = phi <8 x float> [ %r200, %loop193 ], [ %v247, %loop211 ]
  %r219 = phi <8 x float> [ %r201, %loop193 ], [ %v252, %loop211 ]
  %r220 = phi <8 x float> [ %r202, %loop193 ], [ %v257, %loop211 ]
  %r221 = phi <8 x float> [ %r203, %loop193 ], [ %v262, %loop211 ]
  %r222 = phi <8 x float> [ %r204, %loop193 ], [ %v267, %loop211 ]
  %i223 = mul i64 %i214, 8
  %p224 = getelementptr float, ptr %p210, i64 %i223
  %i225 = mul i64 %i214, %a47
  %i226 = add i64 %i153, %i225
  %p227 = getelementptr float, ptr %p208, i64 %i226
  %w228 = load <8 x float>, ptr %p224, align 4
  %x229 = load float, ptr %p227, align 4
  %v230 = insertelement <8 x float> poison, float %x229, i32 0
  %v231 = shufflevector <8 x float> %v230, <8 x float> poison, <8 x i32> zeroinitializer
  %v232 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v231, <8 x float> %w228, <8 x float> %r215)
  %p233 = getelementptr float, ptr %p227, i64 1
  %x234 = load float, ptr %p233, align 4
  %v235 = insertelement <8 x float> poison, float %x234, i32 0
  %v236 = shufflevector <8 x float> %v235, <8 x float> poison, <8 x i32> zeroinitializer
  %v237 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v236, <8 x float> %w228, <8 x float> %r216)
  %p238 = getelementptr float, ptr %p227, i64 2
  %x239 = load float, ptr %p238, align 4
  %v240 = insertelement <8 x float> poison, float %x239, i32 0
  %v241 = shufflevector <8 x float> %v240, <8 x float> poison, <8 x i32> zeroinitializer
  %v242 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v241, <8 x float> %w228, <8 x float> %r217)
  %p243 = getelementptr float, ptr %p227, i64 3
  %x244 = load float, ptr %p243, align 4
  %v245 = insertelement <8 x float> poison, float %x244, i32 0
  %v246 = shufflevector <8 x float> %v245, <8 x float> poison, <8 x i32> zeroinitializer
  %v247 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v246, <8 x float> %w228, <8 x float> %r218)
  %p248 = getelementptr float, ptr %p227, i64 4
  %x249 = load float, ptr %p248, align 4
  %v250 = insertelement <8 x float> poison, float %x249, i32 0
  %v251 = shufflevector <8 x float> %v250, <8 x float> poison, <8 x i32> zeroinitializer
  %v252 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v251, <8 x float> %w228, <8 x float> %r219)
  %p253 = getelementptr float, ptr %p227, i64 5
  %x254 = load float, ptr %p253, align 4
  %v255 = insertelement <8 x float> poison, float %x254, i32 0
  %v256 = shufflevector <8 x float> %v255, <8 x float> poison, <8 x i32> zeroinitializer
  %v257 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v256, <8 x float> %w228, <8 x float> %r220)
  %p258 = getelementptr float, ptr %p227, i64 6
  %x259 = load float, ptr %p258, align 4
  %v260 = insertelement <8 x float> poison, float %x259, i32 0
  %v261 = shufflevector <8 x float> %v260, <8 x float> poison, <8 x i32> zeroinitializer
  %v262 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v261, <8 x float> %w228, <8 x float> %r221)
  %p263 = getelementptr float, ptr %p227, i64 7
  %x264 = load float, ptr %p263, align 4
  %v265 = insertelement <8 x float> poison, float %x264, i32 0
  %v266 = shufflevector <8 x float> %v265, <8 x float> poison, <8 x i32> zeroinitializer
  %v267 = call <8 x float> @llvm.fmuladd.v8f32(<8 x float> %v266, <8 x float> %w228, <8 x float> %r222)
  %i268 = add nsw i64 %i214, 1
  %c269 = icmp slt i64 %i268, %a53
  br i1 %c269, label %loop211, label %done212
done212:
  %r270 = phi <8 x float> [ %r197, %loop193 ], [ %v232, %loop211 ]
  %r271 = phi <8 x float> [ %r198, %loop193 ], [ %v237, %loop211 ]
  %r272 = phi <8 x float> [ %r199, %loop193 ], [ %v242, %loop211 ]
  %r273 = phi <8 x float> [ %r200, %loop193 ], [ %v247, %loop211 ]
  %r274 = phi <8 x float> [ %r201, %loop193 ], [ %v252, %loop211 ]
  %r275 = phi <8 x float> [ %r202, %loop193 ], [ %v257, %loop211 ]
  %r276 = phi <8 x float> [ %r203, %loop193 ], [ %v262, %loop211 ]
  %r277 = phi <8 x float> [ %r204, %loop193 ], [ %v267, %loop211 ]
  %i278 = add nsw i64 %i196, 1
  %c279 = icmp slt i64 %i278, %i132
  br i1 %c279, label %loop193, label %done194
done194:
  %r280 = phi <8 x float> [ %r179, %loop175 ], [ %r270, %done212 ]
  %r281 = phi <8 x float> [ %r180, %loop175 ], [ %r271, %done212 ]
  %r282 = phi <8 x float> [ %r181, %loop175 ], [ %r272, %done212 ]
  %r283 = phi <8 x float> [ %r182, %loop175 ], [ %r273, %done212 ]
  %r284 = phi <8 x float> [ %r183, %loop175 ], [ %r274, %done212 ]
  %r285 = phi <8 x float> [ %r184, %loop175 ], [ %r275, %done212 ]
  %r286 = phi <8 x float> [ %r185, %loop175 ], [ %r276, %done212 ]
  %r287 = phi <8 x float> [ %r186, %loop175 ], [ %r277, %done212 ]
  %i288 = add nsw i64 %i178, 1
  %c289 = icmp slt i64 %i288, %i120
  br i1 %c289, label %loop175, label %done176
done176:
  %r290 = phi <8 x float> [ %r163, %loop159 ], [ %r280, %done194 ]
  %r291 = phi <8 x float> [ %r164, %loop159 ], [ %r281, %done194 ]
  %r292 = phi <8 x float> [ %r165, %loop159 ], [ %r282, %done194 ]
  %r293 = phi <8 x float> [ %r166, %loop159 ], [ %r283, %done194 ]
  %r294 = phi <8 x float> [ %r167, %loop159 ], [ %r284, %done194 ]
  %r295 = phi <8 x float> [ %r168, %loop159 ], [ %r285, %done194 ]
  %r296 = phi <8 x float> [ %r169, %loop159 ], [ %r286, %done194 ]
  %r297 = phi <8 x float> [ %r170, %loop159 ], [ %r287, %done194 ]
  %i298 = add nsw i64 %i162, 1
  %c299 = icmp slt i64 %i298, %a55
  br i1 %c299, label %loop159, label %done160
done160:
  %r300 = phi <8 x float> [ %b152, %loop146 ], [ %r290, %done176 ]
  %r301 = phi <8 x float> [ %b152, %loop146 ], [ %r291, %done176 ]
  %r302 = phi <8 x float> [ %b152, %loop146 ], [ %r292, %done176 ]
  %r303 = phi <8 x float> [ %b152, %loop146 ], [ %r293, %done176 ]
  %r304 = phi <8 x float> [ %b152, %loop146 ], [ %r294, %done176 ]
  %r305 = phi <8 x float> [ %b152, %loop146 ], [ %r295, %done176 ]
  %r306 = phi <8 x float> [ %b152, %loop146 ], [ %r296, %done176 ]
  %r307 = phi <8 x float> [ %b152, %loop146 ], [ %r297, %done176 ]
  %i308 = mul i64 %r97, %a71
  %i309 = mul i64 %i108, %a73
  %i310 = add i64 %i308, %i309
  %i311 = mul i64 %r96, %a75
  %i312 = add i64 %i310, %i311
  %i313 = mul i64 %r95, %a77
  %i314 = add i64 %i312, %i313
  %i315 = mul i64 %i149, 8
  %i316 = add i64 %i314, %i315
  %p317 = getelementptr float, ptr %a69, i64 %i316
  %v318 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r300
  %v319 = select <8 x i1> %v318, <8 x float> splat (float 0x0000000000000000), <8 x float> %r300
  store <8 x float> %v319, ptr %p317, align 4
  %p320 = getelementptr float, ptr %p317, i64 8
  %v321 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r301
  %v322 = select <8 x i1> %v321, <8 x float> splat (float 0x0000000000000000), <8 x float> %r301
  store <8 x float> %v322, ptr %p320, align 4
  %p323 = getelementptr float, ptr %p317, i64 16
  %v324 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r302
  %v325 = select <8 x i1> %v324, <8 x float> splat (float 0x0000000000000000), <8 x float> %r302
  store <8 x float> %v325, ptr %p323, align 4
  %p326 = getelementptr float, ptr %p317, i64 24
  %v327 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r303
  %v328 = select <8 x i1> %v327, <8 x float> splat (float 0x0000000000000000), <8 x float> %r303
  store <8 x float> %v328, ptr %p326, align 4
  %p329 = getelementptr float, ptr %p317, i64 32
  %v330 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r304
  %v331 = select <8 x i1> %v330, <8 x float> splat (float 0x0000000000000000), <8 x float> %r304
  store <8 x float> %v331, ptr %p329, align 4
  %p332 = getelementptr float, ptr %p317, i64 40
  %v333 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r305
  %v334 = select <8 x i1> %v333, <8 x float> splat (float 0x0000000000000000), <8 x float> %r305
  store <8 x float> %v334, ptr %p332, align 4
  %p335 = getelementptr float, ptr %p317, i64 48
  %v336 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r306
  %v337 = select <8 x i1> %v336, <8 x float> splat (float 0x0000000000000000), <8 x float> %r306
  store <8 x float> %v337, ptr %p335, align 4
  %p338 = getelementptr float, ptr %p317, i64 56
  %v339 = fcmp ogt <8 x float> splat (float 0x0000000000000000), %r307
  %v340 = select <8 x i1> %v339, <8 x float> splat (float 0x0000000000000000), <8 x float> %r307
  store <8 x float> %v340, ptr %p338, align 4
  %i341 = add nsw i64 %i149, 8
  %c342 = icmp slt i64 %i341, %i145
  br i1 %c342, label %loop146, label %done147
done147:
  %i343 = zext i1 true to i64
  %i344 = add i64 %r94, %i343
  %c345 = icmp eq i64 %i344, %a23
  %i346 = select i1 %c345, i64 0, i64 %i344
  %i347 = zext i1 %c345 to i64
  %i348 = add i64 %r95, %i347
  %c349 = icmp eq i64 %i348, %a17
  %i350 = select i1 %c349, i64 0, i64 %i348
  %i351 = zext i1 %c349 to i64
  %i352 = add i64 %r96, %i351
  %c353 = icmp eq i64 %i352, %a15
  %i354 = select i1 %c353, i64 0, i64 %i352
  %i355 = zext i1 %c353 to i64
  %i356 = add i64 %r97, %i355
  %c357 = icmp eq i64 %i356, %a9
  %i358 = select i1 %c357, i64 0, i64 %i356
  %i359 = zext i1 %c357 to i64
  %i360 = add i64 %r98, %i359
  %c361 = icmp eq i64 %i360, %a11
  %i362 = select i1 %c361, i64 0, i64 %i360
  %i363 = zext i1 %c361 to i64
  %i364 = add i64 %r99, %i363
  %i365 = add nsw i64 %i93, 1
  %c366 = icmp slt i64 %i365, %end
  br i1 %c366, label %loop90, label %done91
done91:
  %r367 = phi i64 [ %i80, %entry ], [ %i346, %done147 ]
  %r368 = phi i64 [ %i82, %entry ], [ %i350, %done147 ]
  %r369 = phi i64 [ %i84, %entry ], [ %i354, %done147 ]
  %r370 = phi i64 [ %i86, %entry ], [ %i358, %done147 ]
  %r371 = phi i64 [ %i88, %entry ], [ %i362, %done147 ]
  %r372 = phi i64 [ %i89, %entry ], [ %i364, %done147 ]
  ret void
}

; window|max|8|1|4|2|2|1|8,4,0,8|False|True|f32:unit|[0]|acc:f32()None->0
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load ptr, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load ptr, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %p22 = getelementptr i64, ptr %args, i64 11
  %a23 = load i64, ptr %p22, align 8
  %p24 = getelementptr i64, ptr %args, i64 12
  %a25 = load i64, ptr %p24, align 8
  %p26 = getelementptr i64, ptr %args, i64 13
  %a27 = load i64, ptr %p26, align 8
  %p28 = getelementptr i64, ptr %args, i64 14
  %a29 = load i64, ptr %p28, align 8
  %p30 = getelementptr i64, ptr %args, i64 15
  %a31 = load i64, ptr %p30, align 8
  %p32 = getelementptr i64, ptr %args, i64 16
  %a33 = load i64, ptr %p32, align 8
  %p34 = getelementptr i64, ptr %args, i64 17
  %a35 = load i64, ptr %p34, align 8
  %p36 = getelementptr i64, ptr %args, i64 18
  %a37 = load i64, ptr %p36, align 8
  %p38 = getelementptr i64, ptr %args, i64 19
  %a39 = load i64, ptr %p38, align 8
  %p40 = getelementptr i64, ptr %args, i64 20
  %a41 = load i64, ptr %p40, align 8
  %p42 = getelementptr i64, ptr %args, i64 21
  %a43 = load i64, ptr %p42, align 8
  %p44 = getelementptr i64, ptr %args, i64 22
  %a45 = load i64, ptr %p44, align 8
  %p46 = getelementptr i64, ptr %args, i64 23
  %a47 = load i64, ptr %p46, align 8
  %p48 = getelementptr i64, ptr %args, i64 24
  %a49 = load i64, ptr %p48, align 8
  %p50 = getelementptr i64, ptr %args, i64 25
  %a51 = load i64, ptr %p50, align 8
  %p52 = getelementptr i64, ptr %args, i64 26
  %a53 = load i64, ptr %p52, align 8
  %p54 = getelementptr i64, ptr %args, i64 27
  %a55 = load i64, ptr %p54, align 8
  %p56 = getelementptr i64, ptr %args, i64 28
  %a57 = load i64, ptr %p56, align 8
  %p58 = getelementptr i64, ptr %args, i64 29
  %a59 = load i64, ptr %p58, align 8
  %p60 = getelementptr i64, ptr %args, i64 30
  %a61 = load i64, ptr %p60, align 8
  %p62 = getelementptr i64, ptr %args, i64 31
  %a63 = load ptr, ptr %p62, align 8
  %p64 = getelementptr i64, ptr %args, i64 32
  %a65 = load i64, ptr %p64, align 8
  %p66 = getelementptr i64, ptr %args, i64 33
  %a67 = load i64, ptr %p66, align 8
  %p68 = getelementptr i64, ptr %args, i64 34
  %a69 = load i64, ptr %p68, align 8
  %p70 = getelementptr i64, ptr %args, i64 35
  %a71 = load i64, ptr %p70, align 8
  %p72 = getelementptr i64, ptr %args, i64 36
  %a73 = load i64, ptr %p72, align 8
  %i74 = urem i64 %begin, %a17
  %i75 = udiv i64 %begin, %a17
  %i76 = urem i64 %i75, %a13
  %i77 = udiv i64 %i75, %a13
  %i78 = urem i64 %i77, %a19
  %i79 = udiv i64 %i77, %a19
  %i80 = urem i64 %i79, %a15
  %i81 = udiv i64 %i79, %a15
  %c84 = icmp slt i64 %begin, %end
  br i1 %c84, label %loop82, label %done83
loop82:
  %i85 = phi i64 [ %begin, %entry ], [ %i243, %after94 ]
  %r86 = phi i64 [ %i74, %entry ], [ %i228, %after94 ]
  %r87 = phi i64 [ %i76, %entry ], [ %i232, %after94 ]
  %r88 = phi i64 [ %i78, %entry ], [ %i236, %after94 ]
  %r89 = phi i64 [ %i80, %entry ], [ %i240, %after94 ]
  %r90 = phi i64 [ %i81, %entry ], [ %i242, %after94 ]
  %i91 = mul i64 %r88, %a17
  %i92 = add i64 %i91, %r86
  %c95 = icmp slt i64 %i92, %a21
  br i1 %c95, label %exists93, label %after94
exists93:
  %i96 = mul i64 %r89, %a37
  %i97 = sub i64 %i96, %a31
  %i98 = mul i64 %i92, %a39
  %i99 = sub i64 %i98, %a33
  %i100 = sub i64 %a41, 1
  %i101 = sub i64 %i100, %i97
  %i102 = sdiv i64 %i101, %a41
  %c103 = icmp sgt i64 %i102, 0
  %i104 = select i1 %c103, i64 %i102, i64 0
  %i105 = sub i64 %a25, %i97
  %i106 = add i64 %i105, %i100
  %i107 = sdiv i64 %i106, %a41
  %c108 = icmp slt i64 %i107, %a45
  %i109 = select i1 %c108, i64 %i107, i64 %a45
  %c110 = icmp sgt i64 %i109, %i104
  %i111 = select i1 %c110, i64 %i109, i64 %i104
  %i112 = sub i64 %a43, 1
  %i113 = sub i64 %i112, %i99
  %i114 = sdiv i64 %i113, %a43
  %c115 = icmp sgt i64 %i114, 0
  %i116 = select i1 %c115, i64 %i114, i64 0
  %i117 = sub i64 %a27, %i99
  %i118 = add i64 %i117, %i112
  %i119 = sdiv i64 %i118, %a43
  %c120 = icmp slt i64 %i119, %a47
  %i121 = select i1 %c120, i64 %i119, i64 %a47
  %c122 = icmp sgt i64 %i121, %i116
  %i123 = select i1 %c122, i64 %i121, i64 %i116
  %i124 = mul i64 %r90, %a55
  %i125 = mul i64 %r87, %a57
  %i126 = add i64 %i124, %i125
  %p127 = getelementptr float, ptr %a1, i64 %i126
  %i128 = sub i64 0, %a35
  %c131 = icmp slt i64 %i104, %i111
  br i1 %c131, label %loop129, label %done130
loop129:
  %i132 = phi i64 [ %i104, %exists93 ], [ %i208, %done142 ]
  %r133 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r204, %done142 ]
  %r134 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r205, %done142 ]
  %r135 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r206, %done142 ]
  %r136 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r207, %done142 ]
  %i137 = mul i64 %i132, %a41
  %i138 = add i64 %i97, %i137
  %i139 = mul i64 %i138, %a59
  %p140 = getelementptr float, ptr %p127, i64 %i139
  %c143 = icmp slt i64 %i116, %i123
  br i1 %c143, label %loop141, label %done142
loop141:
  %i144 = phi i64 [ %i116, %loop129 ], [ %i202, %loop141 ]
  %r145 = phi <8 x float> [ %r133, %loop129 ], [ %v165, %loop141 ]
  %r146 = phi <8 x float> [ %r134, %loop129 ], [ %v177, %loop141 ]
  %r147 = phi <8 x float> [ %r135, %loop129 ], [ %v189, %loop141 ]
  %r148 = phi <8 x float> [ %r136, %loop129 ], [ %v201, %loop141 ]
  %i149 = mul i64 %i144, %a43
  %i150 = add i64 %i99, %i149
  %i151 = mul i64 %i150, %a61
  %p152 = getelementptr float, ptr %p140, i64 %i151
  %i153 = mul i64 %i128, 8
  %p154 = getelementptr float, ptr %p152, i64 %i153
  %x155 = load <8 x float>, ptr %p154, align 4
  %v156 = fcmp uno <8 x float> %x155, %x155
  %v157 = fcmp ogt <8 x float> %x155, %r145
  %v158 = select <8 x i1> %v157, <8 x float> %x155, <8 x float> %r145
  %v159 = select <8 x i1> %v156, <8 x float> %x155, <8 x float> %v158
  %p160 = getelementptr float, ptr %p154, i64 8
  %x161 = load <8 x float>, ptr %p160, align 4
  %v162 = fcmp uno <8 x float> %x161, %x161
  %v163 = fcmp ogt <8 x float> %x161, %v159
  %v164 = select <8 x i1> %v163, <8 x float> %x161, <8 x float> %v159
  %v165 = select <8 x i1> %v162, <8 x float> %x161, <8 x float> %v164
  %p166 = getelementptr float, ptr %p154, i64 16
  %x167 = load <8 x float>, ptr %p166, align 4
  %v168 = fcmp uno <8 x float> %x167, %x167
  %v169 = fcmp ogt <8 x float> %x167, %r146
  %v170 = select <8 x i1> %v169, <8 x float> %x167, <8 x float> %r146
  %v171 = select <8 x i1> %v168, <8 x float> %x167, <8 x float> %v170
  %p172 = getelementptr float, ptr %p154, i64 24
  %x173 = load <8 x float>, ptr %p172, align 4
  %v174 = fcmp uno <8 x float> %x173, %x173
  %v175 = fcmp ogt <8 x float> %x173, %v171
  %v176 = select <8 x i1> %v175, <8 x float> %x173, <8 x float> %v171
  %v177 = select <8 x i1> %v174, <8 x float> %x173, <8 x float> %v176
  %p178 = getelementptr float, ptr %p154, i64 32
  %x179 = load <8 x float>, ptr %p178, align 4
  %v180 = fcmp uno <8 x float> %x179, %x179
  %v181 = fcmp ogt <8 x float> %x179, %r147
  %v182 = select <8 x i1> %v181, <8 x float> %x179, <8 x float> %r147
  %v183 = select <8 x i1> %v180, <8 x float> %x179, <8 x float> %v182
  %p184 = getelementptr float, ptr %p154, i64 40
  %x185 = load <8 x float>, ptr %p184, align 4
  %v186 = fcmp uno <8 x float> %x185, %x185
  %v187 = fcmp ogt <8 x float> %x185, %v183
  %v188 = select <8 x i1> %v187, <8 x float> %x185, <8 x float> %v183
  %v189 = select <8 x i1> %v186, <8 x float> %x185, <8 x float> %v188
  %p190 = getelementptr float, ptr %p154, i64 48
  %x191 = load <8 x float>, ptr %p190, align 4
  %v192 = fcmp uno <8 x float> %x191, %x191
  %v193 = fcmp ogt <8 x float> %x191, %r148
  %v194 = select <8 x i1> %v193, <8 x float> %x191, <8 x float> %r148
  %v195 = select <8 x i1> %v192, <8 x float> %x191, <8 x float> %v194
  %p196 = getelementptr float, ptr %p154, i64 56
  %x197 = load <8 x float>, ptr %p196, align 4
  %v198 = fcmp uno <8 x float> %x197, %x197
  %v199 = fcmp ogt <8 x float> %x197, %v195
  %v200 = select <8 x i1> %v199, <8 x float> %x197, <8 x float> %v195
  %v201 = select <8 x i1> %v198, <8 x float> %x197, <8 x float> %v200
  %i202 = add nsw i64 %i144, 1
  %c203 = icmp slt i64 %i202, %i123
  br i1 %c203, label %loop141, label %done142
done142:
  %r204 = phi <8 x float> [ %r133, %loop129 ], [ %v165, %loop141 ]
  %r205 = phi <8 x float> [ %r134, %loop129 ], [ %v177, %loop141 ]
  %r206 = phi <8 x float> [ %r135, %loop129 ], [ %v189, %loop141 ]
  %r207 = phi <8 x float> [ %r136, %loop129 ], [ %v201, %loop141 ]
  %i208 = add nsw i64 %i132, 1
  %c209 = icmp slt i64 %i208, %i111
  br i1 %c209, label %loop129, label %done130
done130:
  %r210 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r204, %done142 ]
  %r211 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r205, %done142 ]
  %r212 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r206, %done142 ]
  %r213 = phi <8 x float> [ splat (float 0xFFF0000000000000), %exists93 ], [ %r207, %done142 ]
  %i214 = mul i64 %r90, %a65
  %i215 = mul i64 %r87, %a67
  %i216 = add i64 %i214, %i215
  %i217 = mul i64 %r89, %a69
  %i218 = add i64 %i216, %i217
  %i219 = mul i64 %i92, %a71
  %i220 = add i64 %i218, %i219
  %p221 = getelementptr float, ptr %a63, i64 %i220
  store <8 x float> %r210, ptr %p221, align 4
  %p222 = getelementptr float, ptr %p221, i64 8
  store <8 x float> %r211, ptr %p222, align 4
  %p223 = getelementptr float, ptr %p221, i64 16
  store <8 x float> %r212, ptr %p223, align 4
  %p224 = getelementptr float, ptr %p221, i64 24
  store <8 x float> %r213, ptr %p224, align 4
  br label %after94
after94:
  %i225 = zext i1 true to i64
  %i226 = add i64 %r86, %i225
  %c227 = icmp eq i64 %i226, %a17
  %i228 = select i1 %c227, i64 0, i64 %i226
  %i229 = zext i1 %c227 to i64
  %i230 = add i64 %r87, %i229
  %c231 = icmp eq i64 %i230, %a13
  %i232 = select i1 %c231, i64 0, i64 %i230
  %i233 = zext i1 %c231 to i64
  %i234 = add i64 %r88, %i233
  %c235 = icmp eq i64 %i234, %a19
  %i236 = select i1 %c235, i64 0, i64 %i234
  %i237 = zext i1 %c235 to i64
  %i238 = add i64 %r89, %i237
  %c239 = icmp eq i64 %i238, %a15
  %i240 = select i1 %c239, i64 0, i64 %i238
  %i241 = zext i1 %c239 to i64
  %i242 = add i64 %r90, %i241
  %i243 = add nsw i64 %i85, 1
  %c244 = icmp slt i64 %i243, %end
  br i1 %c244, label %loop82, label %done83
done83:
  %r245 = phi i64 [ %i74, %entry ], [ %i228, %after94 ]
  %r246 = phi i64 [ %i76, %entry ], [ %i232, %after94 ]
  %r247 = phi i64 [ %i78, %entry ], [ %i236, %after94 ]
  %r248 = phi i64 [ %i80, %entry ], [ %i240, %after94 ]
  %r249 = phi i64 [ %i81, %entry ], [ %i242, %after94 ]
  ret void
}

; layout|from|8|8
define  void @kernel(ptr %args, i64 %begin, i64 %end, i64 %worker) nounwind {
entry:
  %a1 = load ptr, ptr %args, align 8
  %p2 = getelementptr i64, ptr %args, i64 1
  %a3 = load ptr, ptr %p2, align 8
  %p4 = getelementptr i64, ptr %args, i64 2
  %a5 = load i64, ptr %p4, align 8
  %p6 = getelementptr i64, ptr %args, i64 3
  %a7 = load i64, ptr %p6, align 8
  %p8 = getelementptr i64, ptr %args, i64 4
  %a9 = load i64, ptr %p8, align 8
  %p10 = getelementptr i64, ptr %args, i64 5
  %a11 = load i64, ptr %p10, align 8
  %p12 = getelementptr i64, ptr %args, i64 6
  %a13 = load i64, ptr %p12, align 8
  %p14 = getelementptr i64, ptr %args, i64 7
  %a15 = load i64, ptr %p14, align 8
  %p16 = getelementptr i64, ptr %args, i64 8
  %a17 = load i64, ptr %p16, align 8
  %p18 = getelementptr i64, ptr %args, i64 9
  %a19 = load i64, ptr %p18, align 8
  %p20 = getelementptr i64, ptr %args, i64 10
  %a21 = load i64, ptr %p20, align 8
  %i22 = urem i64 %begin, %a13
  %i23 = udiv i64 %begin, %a13
  %i24 = urem i64 %i23, %a7
  %i25 = udiv i64 %i23, %a7
  %c28 = icmp slt i64 %begin, %end
  br i1 %c28, label %loop26, label %done27
loop26:
  %i29 = phi i64 [ %begin, %entry ], [ %i146, %done112 ]
  %r30 = phi i64 [ %i22, %entry ], [ %i139, %done112 ]
  %r31 = phi i64 [ %i24, %entry ], [ %i143, %done112 ]
  %r32 = phi i64 [ %i25, %entry ], [ %i145, %done112 ]
  %i33 = mul i64 %r32, %a15
  %i34 = mul i64 %r31, 8
  %i35 = mul i64 %i34, %a17
  %i36 = add i64 %i33, %i35
  %i37 = mul i64 %r32, %a19
  %i38 = mul i64 %r31, %a21
  %i39 = add i64 %i37, %i38
  %p40 = getelementptr float, ptr %a1, i64 %i36
  %p41 = getelementptr float, ptr %a3, i64 %i39
  %i42 = mul i64 %r30, %a11
  %i43 = add i64 %i42, %a11
  %c44 = icmp slt i64 %i43, %a9
  %i45 = select i1 %c44, i64 %i43, i64 %a9
  %i46 = sub i64 %i45, %i42
  %i47 = sdiv i64 %i46, 8
  %i48 = mul i64 %i47, 8
  %i49 = add i64 %i42, %i48
  %c52 = icmp slt i64 %i42, %i49
  br i1 %c52, label %loop50, label %done51
loop50:
  %i53 = phi i64 [ %i42, %loop26 ], [ %i109, %loop50 ]
  %p54 = getelementptr float, ptr %p40, i64 %i53
  %i55 = mul i64 %i53, 8
  %p56 = getelementptr float, ptr %p41, i64 %i55
  %p57 = getelementptr float, ptr %p54, i64 %a17
  %i58 = mul i64 2, %a17
  %p59 = getelementptr float, ptr %p54, i64 %i58
  %i60 = mul i64 3, %a17
  %p61 = getelementptr float, ptr %p54, i64 %i60
  %i62 = mul i64 4, %a17
  %p63 = getelementptr float, ptr %p54, i64 %i62
  %i64 = mul i64 5, %a17
  %p65 = getelementptr float, ptr %p54, i64 %i64
  %i66 = mul i64 6, %a17
  %p67 = getelementptr float, ptr %p54, i64 %i66
  %i68 = mul i64 7, %a17
  %p69 = getelementptr float, ptr %p54, i64 %i68
  %p70 = getelementptr float, ptr %p56, i64 8
  %p71 = getelementptr float, ptr %p56, i64 16
  %p72 = getelementptr float, ptr %p56, i64 24
  %p73 = getelementptr float, ptr %p56, i64 32
  %p74 = getelementptr float, ptr %p56, i64 40
  %p75 = getelementptr float, ptr %p56, i64 48
  %p76 = getelementptr float, ptr %p56, i64 56
  %v77 = load <8 x float>, ptr %p56, align 4
  %v78 = load <8 x float>, ptr %p70, align 4
  %v79 = load <8 x float>, ptr %p71, align 4
  %v80 = load <8 x float>, ptr %p72, align 4
  %v81 = load <8 x float>, ptr %p73, align 4
  %v82 = load <8 x float>, ptr %p74, align 4
  %v83 = load <8 x float>, ptr %p75, align 4
  %v84 = load <8 x float>, ptr %p76, align 4
  %v85 = shufflevector <8 x float> %v77, <8 x float> %v81, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v86 = shufflevector <8 x float> %v77, <8 x float> %v81, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v87 = shufflevector <8 x float> %v78, <8 x float> %v82, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v88 = shufflevector <8 x float> %v78, <8 x float> %v82, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v89 = shufflevector <8 x float> %v79, <8 x float> %v83, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v90 = shufflevector <8 x float> %v79, <8 x float> %v83, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v91 = shufflevector <8 x float> %v80, <8 x float> %v84, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 8, i32 9, i32 10, i32 11>
  %v92 = shufflevector <8 x float> %v80, <8 x float> %v84, <8 x i32> <i32 4, i32 5, i32 6, i32 7, i32 12, i32 13, i32 14, i32 15>
  %v93 = shufflevector <8 x float> %v85, <8 x float> %v89, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v94 = shufflevector <8 x float> %v85, <8 x float> %v89, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v95 = shufflevector <8 x float> %v87, <8 x float> %v91, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v96 = shufflevector <8 x float> %v87, <8 x float> %v91, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v97 = shufflevector <8 x float> %v86, <8 x float> %v90, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v98 = shufflevector <8 x float> %v86, <8 x float> %v90, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v99 = shufflevector <8 x float> %v88, <8 x float> %v92, <8 x i32> <i32 0, i32 1, i32 8, i32 9, i32 4, i32 5, i32 12, i32 13>
  %v100 = shufflevector <8 x float> %v88, <8 x float> %v92, <8 x i32> <i32 2, i32 3, i32 10, i32 11, i32 6, i32 7, i32 14, i32 15>
  %v101 = shufflevector <8 x float> %v93, <8 x float> %v95, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v102 = shufflevector <8 x float> %v93, <8 x float> %v95, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v103 = shufflevector <8 x float> %v94, <8 x float> %v96, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v104 = shufflevector <8 x float> %v94, <8 x float> %v96, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v105 = shufflevector <8 x float> %v97, <8 x float> %v99, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v106 = shufflevector <8 x float> %v97, <8 x float> %v99, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  %v107 = shufflevector <8 x float> %v98, <8 x float> %v100, <8 x i32> <i32 0, i32 8, i32 2, i32 10, i32 4, i32 12, i32 6, i32 14>
  %v108 = shufflevector <8 x float> %v98, <8 x float> %v100, <8 x i32> <i32 1, i32 9, i32 3, i32 11, i32 5, i32 13, i32 7, i32 15>
  store <8 x float> %v101, ptr %p54, align 4
  store <8 x float> %v102, ptr %p57, align 4
  store <8 x float> %v103, ptr %p59, align 4
  store <8 x float> %v104, ptr %p61, align 4
  store <8 x float> %v105, ptr %p63, align 4
  store <8 x float> %v106, ptr %p65, align 4
  store <8 x float> %v107, ptr %p67, align 4
  store <8 x float> %v108, ptr %p69, align 4
  %i109 = add nsw i64 %i53, 8
  %c110 = icmp slt i64 %i109, %i49
  br i1 %c110, label %loop50, label %done51
done51:
  %c113 = icmp slt i64 %i49, %i45
  br i1 %c113, label %loop111, label %done112
loop111:
  %i114 = phi i64 [ %i49, %done51 ], [ %i134, %loop111 ]
  %p115 = getelementptr float, ptr %p40, i64 %i114
  %i116 = mul i64 %i114, 8
  %p117 = getelementptr float, ptr %p41, i64 %i116
  %v118 = load <8 x float>, ptr %p117, align 4
  %v119 = extractelement <8 x float> %v118, i32 0
  store float %v119, ptr %p115, align 4
  %p120 = getelementptr float, ptr %p115, i64 %a17
  %v121 = extractelement <8 x float> %v118, i32 1
  store float %v121, ptr %p120, align 4
  %p122 = getelementptr float, ptr %p120, i64 %a17
  %v123 = extractelement <8 x float> %v118, i32 2
  store float %v123, ptr %p122, align 4
  %p124 = getelementptr float, ptr %p122, i64 %a17
  %v125 = extractelement <8 x float> %v118, i32 3
  store float %v125, ptr %p124, align 4
  %p126 = getelementptr float, ptr %p124, i64 %a17
  %v127 = extractelement <8 x float> %v118, i32 4
  store float %v127, ptr %p126, align 4
  %p128 = getelementptr float, ptr %p126, i64 %a17
  %v129 = extractelement <8 x float> %v118, i32 5
  store float %v129, ptr %p128, align 4
  %p130 = getelementptr float, ptr %p128, i64 %a17
  %v131 = extractelement <8 x float> %v118, i32 6
  store float %v131, ptr %p130, align 4
  %p132 = getelementptr float, ptr %p130, i64 %a17
  %v133 = extractelement <8 x float> %v118, i32 7
  store float %v133, ptr %p132, align 4
  %i134 = add nsw i64 %i114, 1
  %c135 = icmp slt i64 %i134, %i45
  br i1 %c135, label %loop111, label %done112
done112:
  %i136 = zext i1 true to i64
  %i137 = add i64 %r30, %i136
  %c138 = icmp eq i64 %i137, %a13
  %i139 = select i1 %c138, i64 0, i64 %i137
  %i140 = zext i1 %c138 to i64
  %i141 = add i64 %r31, %i140
  %c142 = icmp eq i64 %i141, %a7
  %i143 = select i1 %c142, i64 0, i64 %i141
  %i144 = zext i1 %c142 to i64
  %i145 = add i64 %r32, %i144
  %i146 = add nsw i64 %i29, 1
  %c147 = icmp slt i64 %i146, %end
  br i1 %c147, label %loop26, label %done27
done27:
  %r148 = phi i64 [ %i22, %entry ], [ %i139, %done112 ]
  %r149 = phi i64 [ %i24, %entry ], [ %i143, %done112 ]
  %r150 = phi i64 [ %i25, %entry ], [ %i145, %done112 ]
  ret void
}
