"""Write Belebele's member files, one a language. Run by `tools/generate_tasks.py`."""

from __future__ import annotations

LANGUAGES = """
    acm_Arab afr_Latn als_Latn amh_Ethi apc_Arab arb_Arab arb_Latn ars_Arab ary_Arab arz_Arab
    asm_Beng azj_Latn bam_Latn ben_Beng ben_Latn bod_Tibt bul_Cyrl cat_Latn ceb_Latn ces_Latn
    ckb_Arab dan_Latn deu_Latn ell_Grek eng_Latn est_Latn eus_Latn fin_Latn fra_Latn fuv_Latn
    gaz_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hin_Latn hrv_Latn hun_Latn
    hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kac_Latn kan_Knda
    kat_Geor kaz_Cyrl kea_Latn khk_Cyrl khm_Khmr kin_Latn kir_Cyrl kor_Hang lao_Laoo lin_Latn
    lit_Latn lug_Latn luo_Latn lvs_Latn mal_Mlym mar_Deva mkd_Cyrl mlt_Latn mri_Latn mya_Mymr
    nld_Latn nob_Latn npi_Deva npi_Latn nso_Latn nya_Latn ory_Orya pan_Guru pbt_Arab pes_Arab
    plt_Latn pol_Latn por_Latn ron_Latn rus_Cyrl shn_Mymr sin_Latn sin_Sinh slk_Latn slv_Latn
    sna_Latn snd_Arab som_Latn sot_Latn spa_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn
    tam_Taml tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi tsn_Latn tso_Latn tur_Latn ukr_Cyrl
    urd_Arab urd_Latn uzn_Latn vie_Latn war_Latn wol_Latn xho_Latn yor_Latn zho_Hans zho_Hant
    zsm_Latn zul_Latn
""".split()


def files() -> dict[str, str]:
    made = {
        f"{code}.yaml": f"include: _belebele.yaml\ntask: belebele_{code}\ndataset_name: {code}\n"
        for code in LANGUAGES
    }
    members = "".join(f"  - belebele_{code}\n" for code in LANGUAGES)
    made["belebele.yaml"] = (
        f"group: belebele\ntask:\n{members}aggregate_metric_list:\n  - metric: acc\n"
        "  - metric: acc_norm\nmetadata:\n  version: 0.1\n"
    )
    return made
